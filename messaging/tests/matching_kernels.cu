// Test kernels: a warp, or a block, matches.
#include "matching_kernels.h"
#include "polypath/device/matcher_mpi.cuh"
#include "simt/platform.cuh"

namespace polypath::test {

template <unsigned kCapacity, typename Members>
SIMT_DEVICE_NOINLINE void run_match(const Members& members, const MatchRow& row) {
  using Matcher = device::matcher<device::mpi, kCapacity>;
  auto& memory = *simt::dynamic_shared<typename Matcher::storage>();
  device::match_outcome outcome{};
  for (std::uint32_t time = 0; time < row.times; ++time)
    outcome = Matcher::match(members, memory, row.batch);
  if (!members.is_leader()) return;
  auto* const words = reinterpret_cast<std::uint32_t*>(row.outcome);
  simt::store(words, static_cast<std::uint32_t>(outcome.status));
  simt::store(words + 1, outcome.index);
  simt::store(words + 2, outcome.matches);
  simt::store(words + 3, outcome.unmatched_messages);
  simt::store(words + 4, outcome.unmatched_receives);
}

SIMT_KERNEL(polypath_test_match_32, 64, MatchRow row) { run_match<32>(simt::this_block{}, row); }
SIMT_KERNEL(polypath_test_match_64, 32, MatchRow row) { run_match<64>(simt::this_warp{}, row); }
SIMT_KERNEL(polypath_test_match_256, 256, MatchRow row) {
  if (row.by_warp)
    run_match<256>(simt::this_warp{}, row);
  else
    run_match<256>(simt::this_block{}, row);
}
SIMT_KERNEL(polypath_test_match_1024, 1024, MatchRow row) {
  run_match<1024>(simt::this_block{}, row);
}

}  // namespace polypath::test
