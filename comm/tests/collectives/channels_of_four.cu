// The kernels by channels of up to four ranks, and by lines, for a test of what they keep in local
// memory (check_spills.cmake).
#include "collectives/kernels/collective_kernels.cuh"

namespace polypath {

template <typename Element>
SIMT_DEVICE void run_four(const CollectiveArgs& args) {
  using Works = channels::Work[2];
  SIMT_SHARED(Works, works);
  channels::run_among<Element, 4>(args, works);
}

}  // namespace polypath

SIMT_KERNEL(polypath_four_float32, polypath::kCollectiveThreads,
            POLYPATH_PARAMETER polypath::CollectiveArgs args) {
  polypath::run_four<float>(args);
}
SIMT_KERNEL(polypath_four_float16, polypath::kCollectiveThreads,
            POLYPATH_PARAMETER polypath::CollectiveArgs args) {
  polypath::run_four<polypath::simt::float16>(args);
}
SIMT_KERNEL(polypath_lines_of_float32, polypath::kCollectiveThreads,
            POLYPATH_PARAMETER polypath::CollectiveArgs args) {
  polypath::lines::run<float>(args);
}
SIMT_KERNEL(polypath_lines_of_float16, polypath::kCollectiveThreads,
            POLYPATH_PARAMETER polypath::CollectiveArgs args) {
  polypath::lines::run<polypath::simt::float16>(args);
}
