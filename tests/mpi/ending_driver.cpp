// In the place of the CUDA driver (POLYPATH_DRIVER_LIBRARY): passes everything on to the simulated
// one, but for the kernel before which this process must end, or stop.
#include <cuda.h>
#include <dlfcn.h>

#include <atomic>
#include <csignal>

namespace {
std::atomic<int> signal_at_launch{0};

void obey() {
  if (const int signal = signal_at_launch.exchange(0)) std::raise(signal);
}

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

/// The process sends itself this signal at its next launch of a kernel.
EXPORTED void polypath_test_signal_at_launch(int signal) { signal_at_launch = signal; }

EXPORTED CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                                 unsigned grid_z, unsigned block_x, unsigned block_y,
                                 unsigned block_z, unsigned shared_bytes, CUstream stream,
                                 void** parameters, void** extra) {
  obey();
  static const auto original =
      reinterpret_cast<decltype(&cuLaunchKernel)>(dlsym(RTLD_NEXT, "cuLaunchKernel"));
  return original(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream,
                  parameters, extra);
}

EXPORTED CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function,
                                   void** parameters, void** extra) {
  obey();
  static const auto original =
      reinterpret_cast<decltype(&cuLaunchKernelEx)>(dlsym(RTLD_NEXT, "cuLaunchKernelEx"));
  return original(config, function, parameters, extra);
}
