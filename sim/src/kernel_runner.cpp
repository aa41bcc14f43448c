#include "kernel_runner.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <mutex>

#include "device_traits.hpp"
#include "driver.hpp"
#include "failure.hpp"
#include "reach.hpp"

namespace polypath::sim {

// ---- memory ----

std::byte* KernelMemory::at(std::uintptr_t address, std::size_t bytes, bool writes) {
  const Reached& reached = find(address);
  const Allocation& allocation = *reached.allocation;
  if (address - allocation.base + bytes > allocation.bytes)
    throw simt::Fault{fmt::format("{:#x} and {} bytes run over the end of an allocation of {}",
                                  address, bytes, allocation.bytes)};
  if (!writes) return const_cast<std::byte*>(allocation.read(address, bytes));
  if (!reached.may_write) throw simt::Fault{fmt::format("{:#x} may only be read", address)};
  return allocation.overwrite(address, bytes);
}

MemoryId KernelMemory::location(std::uintptr_t address) {
  return find(address).allocation->location;
}

const KernelMemory::Reached& KernelMemory::find(std::uintptr_t address) {
  const auto holds = [address](const Reached& reached) {
    return address - reached.allocation->base < reached.allocation->bytes;
  };
  if (last_ != nullptr && holds(*last_)) return *last_;
  auto known = reached_.upper_bound(address);
  if (known == reached_.begin() || !holds((--known)->second)) {
    const Reached memory = look_up(address);
    known = reached_.insert_or_assign(memory.allocation->base, memory).first;
  }
  return *(last_ = &known->second);
}

KernelMemory::Reached KernelMemory::look_up(std::uintptr_t address) {
  DriverMutex::ForWorkers mutex(driver_.mutex);
  std::unique_lock lock(mutex, std::defer_lock);
  if (!is_locked_) lock.lock();
  const AllocationPtr allocation = driver_.memory.find(address);
  if (!allocation) throw simt::Fault{fmt::format("{:#x} is no memory of a GPU", address)};
  const Context* const context = driver_.contexts().find(context_);
  if (context == nullptr) throw simt::Fault{"its context is destroyed"};
  const auto reaches = [&](CUmemAccess_flags access) {
    return reach(driver_.pools(), *context, *allocation, access) == Reach::direct;
  };
  if (!reaches(CU_MEM_ACCESS_FLAGS_PROT_READ))
    throw simt::Fault{fmt::format("{:#x}, on {}, may not be used by GPU {}", address,
                                  to_string(allocation->location), device_)};
  return {allocation, reaches(CU_MEM_ACCESS_FLAGS_PROT_READWRITE)};
}

// ---- launches ----

simt::Launch Kernels::launch_of(const KernelRun& run, int multiprocessors, bool folds) {
  const KernelCall& call = run.call;
  simt::Launch launch;
  launch.kernel = call.host_kernel;
  launch.device = run.device;
  launch.blocks = call.blocks;
  launch.threads = call.threads;
  if (folds && call.host_kernel->folded_threads != 0)
    launch.threads = std::min(call.threads, call.host_kernel->folded_threads);
  launch.shared_bytes = call.shared_bytes;
  // One block a multiprocessor: what polypath's kernels, with their registers, can count on.
  launch.blocks_of_device = static_cast<unsigned>(multiprocessors);
  // It begins after them all the same: what counts is that it would have waited.
  launch.begins_early = call.begins_early;
  launch.arguments = call.arguments;
  return launch;
}

Operation Driver::kernel_operation(const KernelCall& kernel) {
  const auto run = std::make_shared<KernelRun>();
  run->call = kernel;
  run->device = contexts_.get(kernel.context).device;
  Operation operation;
  operation.kernel_on = run->device;
  operation.may_complete = [this, run] {
    if (!run->is_begun) {
      run->is_begun = true;
      kernels_->begin(run);
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

void Driver::note_launched(const OperationPtr& issued) {
  std::erase_if(launched_, [](const std::weak_ptr<Operation>& each) {
    const OperationPtr kernel = each.lock();
    return !kernel || kernel->done;
  });
  launched_.push_back(issued);
}

void Driver::launch_kernel(const KernelCall& kernel, CUstream handle) {
  contexts_.current();
  streams_.wait_for_room(handle);
  Stream& on = streams_.get(handle);
  require(on.context == kernel.context, CUDA_ERROR_INVALID_CONTEXT);
  if (on.capture.is_active()) {
    captures_.add_node(on.capture, kernel);
    return;
  }
  note_launched(streams_.enqueue(on, kernel_operation(kernel)));
  devices_->spend(node.costs.copy_issue_us);
}

void Driver::wait_for_kernels(int device) {
  devices_->catch_up();
  std::vector<OperationPtr> running;
  for (const std::weak_ptr<Operation>& each : launched_)
    if (const OperationPtr kernel = each.lock())
      if (kernel->kernel_on == device && kernel->pending == 0 && !kernel->done)
        running.push_back(kernel);
  if (running.empty()) return;
  const DriverMutex::Alone alone(mutex);
  for (const OperationPtr& kernel : running) devices_->wait(kernel);
}

void Driver::remove_module(CUmodule handle) {
  for (const auto& [kernel, function] : modules.get(handle).functions) functions.remove(function);
  modules.remove(handle);
}

}  // namespace polypath::sim
