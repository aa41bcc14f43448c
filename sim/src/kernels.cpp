#include "kernels.hpp"

#include <cstdio>
#include <memory>
#include <utility>

#include "failure.hpp"

namespace polypath::sim {

CUmodule Kernels::load_module(Context& context) {
  wait_for_running(context.device);
  auto module = std::make_unique<Module>();
  module->context = context.handle;
  const CUmodule handle = modules_.add(std::move(module));
  context.modules.insert(handle);
  return handle;
}

void Kernels::unload_module(CUmodule handle) {
  contexts_.get(modules_.get(handle).context).modules.erase(handle);
  remove(handle);
}

void Kernels::unload_all(const Context& context) {
  for (const CUmodule handle : context.modules) remove(handle);
}

CUfunction Kernels::find_function(CUmodule handle, const char* name) {
  Module& module = modules_.get(handle);
  const simt::HostKernel* const kernel = simt::find_host_kernel(name);
  require(kernel != nullptr, CUDA_ERROR_NOT_FOUND);
  CUfunction& known = module.functions[kernel];
  if (known == nullptr)
    known = functions_.add(std::make_unique<Function>(Function{module.context, kernel}));
  return known;
}

Operation Kernels::operation(const KernelCall& call) {
  const auto run = std::make_shared<KernelRun>();
  run->call = call;
  run->device = contexts_.get(call.context).device;
  Operation operation;
  operation.kernel_on = run->device;
  operation.may_complete = [this, run] {
    if (!run->is_begun) {
      run->is_begun = true;
      runner_->begin(run);
    }
    return run->has_ended.load(std::memory_order_acquire);
  };
  operation.effect = [this, run] {
    run->outside.reset();  // and with it the memory that the kernel held
    if (run->error.empty()) return;
    std::fprintf(stderr, "polypath_sim: a kernel failed: %s\n", run->error.c_str());
    if (Context* const context = contexts_.find(run->call.context))
      context->fault = CUDA_ERROR_LAUNCH_FAILED;
  };
  return operation;
}

void Kernels::note_issued(const OperationPtr& issued) {
  std::erase_if(issued_, [](const std::weak_ptr<Operation>& each) {
    const OperationPtr kernel = each.lock();
    return !kernel || kernel->done;
  });
  issued_.push_back(issued);
}

void Kernels::launch(const KernelCall& call, CUstream handle) {
  contexts_.current();
  streams_.wait_for_room(handle);
  Stream& stream = streams_.get(handle);
  require(stream.context == call.context, CUDA_ERROR_INVALID_CONTEXT);
  if (stream.capture.is_active()) {
    captures_.add_node(stream.capture, call);
    return;
  }
  note_issued(streams_.enqueue(stream, operation(call)));
  devices_.spend(node_.costs.launch_us);
}

void Kernels::wait_for_running(int device) {
  devices_.catch_up();
  std::vector<OperationPtr> running;
  for (const std::weak_ptr<Operation>& each : issued_)
    if (const OperationPtr kernel = each.lock())
      if (kernel->kernel_on == device && kernel->pending == 0 && !kernel->done)
        running.push_back(kernel);
  if (running.empty()) return;
  const DriverMutex::Alone alone(mutex_);
  for (const OperationPtr& kernel : running) devices_.wait(kernel);
}

void Kernels::remove(CUmodule handle) {
  for (const auto& [kernel, function] : modules_.get(handle).functions) functions_.remove(function);
  modules_.remove(handle);
}

}  // namespace polypath::sim
