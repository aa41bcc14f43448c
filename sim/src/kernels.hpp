// Kernels: modules, functions, and launches.
//
// Kernels owns all modules and functions, knows which kernels may still run, and owns what runs
// them. All of it is guarded by the driver's lock. A handle that is none, or no longer, is Failure
// INVALID_HANDLE. What waits may give the lock back meanwhile: what was looked up has to be looked
// up again.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "captures.hpp"
#include "contexts.hpp"
#include "cuda_api.hpp"
#include "devices.hpp"
#include "handle_table.hpp"
#include "kernel_runner.hpp"
#include "objects.hpp"
#include "operation.hpp"
#include "streams.hpp"
#include "topology/node.hpp"

namespace polypath::sim {

/// Kernels that a context has loaded: for any image, the kernels of this library
/// (simt/host_kernels.hpp).
struct Module {
  CUcontext context = nullptr;
  std::map<const simt::HostKernel*, CUfunction> functions;  ///< that were asked for
};

struct Function {
  CUcontext context = nullptr;
  const simt::HostKernel* host_kernel = nullptr;
  int dynamic_shared_bytes = 48 << 10;  ///< the most that a launch may ask for
};

class Kernels {
 public:
  /// The others must outlive this, and what it issues.
  Kernels(const Node& node, DriverMutex& mutex, Contexts& contexts, Streams& streams,
          Captures& captures, Devices& devices, std::unique_ptr<KernelRunner> runner)
      : node_(node),
        mutex_(mutex),
        contexts_(contexts),
        streams_(streams),
        captures_(captures),
        devices_(devices),
        runner_(std::move(runner)) {}

  /// As the real driver: waits for the kernels that run on the context's GPU, or could, and lets no
  /// other thread of the program call meanwhile (docs/cuda-notes.md).
  CUmodule load_module(Context& context);
  void unload_module(CUmodule handle);
  /// All modules of the context.
  void unload_all(const Context& context);
  /// The module's function of this name: always the same. Failure NOT_FOUND when there is no such
  /// kernel.
  CUfunction find_function(CUmodule handle, const char* name);
  [[nodiscard]] Function& function(CUfunction handle) const { return functions_.get(handle); }

  /// Puts it on the stream, or into its capture. Failure INVALID_CONTEXT when the stream is of
  /// another context.
  void launch(const KernelCall& call, CUstream stream);
  /// What runs it. A kernel that fails leaves its context with that error.
  Operation operation(const KernelCall& call);
  /// Must be told of every operation() that was issued.
  void note_issued(const OperationPtr& issued);

 private:
  void wait_for_running(int device);
  void remove(CUmodule handle);

  const Node& node_;
  DriverMutex& mutex_;
  Contexts& contexts_;
  Streams& streams_;
  Captures& captures_;
  Devices& devices_;
  const std::unique_ptr<KernelRunner> runner_;
  HandleTable<CUmodule, Module, 0x51D0> modules_;
  HandleTable<CUfunction, Function, 0x51D1> functions_;
  std::vector<std::weak_ptr<Operation>> issued_;  // kernels that have not all ended
};

}  // namespace polypath::sim
