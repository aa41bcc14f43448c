// The kernels of lists.cuh, for GPUs.
#include "lists.cuh"

extern "C" __global__ void __launch_bounds__(messaging_example::kListsThreads)
    messaging_build_lists(messaging_example::ListsRun run) {
  messaging_example::build_lists(run);
}
extern "C" __global__ void __launch_bounds__(messaging_example::kListsThreads)
    messaging_empty_lists(messaging_example::ListsRun run) {
  messaging_example::empty_lists(run);
}
