// The kernel of queens.cuh, for GPUs.
#include "queens.cuh"

extern "C" __global__ void __launch_bounds__(messaging_example::kQueensThreads, 1)
    messaging_queens(messaging_example::QueensRun run) {
  messaging_example::queens(run);
}
