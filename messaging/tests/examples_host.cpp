// The host builds of the kernels of examples/messaging.
#include "../../examples/messaging/himeno.cuh"
#include "../../examples/messaging/lists.cuh"
#include "../../examples/messaging/queens.cuh"
#include "simt/platform.cuh"

SIMT_KERNEL(messaging_himeno, messaging_example::kHimenoThreads, messaging_example::HimenoRun run) {
  messaging_example::himeno(run);
}
SIMT_KERNEL(messaging_queens, messaging_example::kQueensThreads, messaging_example::QueensRun run) {
  messaging_example::queens(run);
}
SIMT_KERNEL(messaging_build_lists, messaging_example::kListsThreads,
            messaging_example::ListsRun run) {
  messaging_example::build_lists(run);
}
SIMT_KERNEL(messaging_empty_lists, messaging_example::kListsThreads,
            messaging_example::ListsRun run) {
  messaging_example::empty_lists(run);
}
