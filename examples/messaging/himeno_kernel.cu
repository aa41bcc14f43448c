// The kernel of himeno.cuh, for GPUs.
#include "himeno.cuh"

extern "C" __global__ void __launch_bounds__(messaging_example::kHimenoThreads, 1)
    messaging_himeno(messaging_example::HimenoRun run) {
  messaging_example::himeno(run);
}
