// Matching without a source wildcard. Of many queues each warp takes one; blocks take long ones.
#include "messaging/kernels/matching_kernels.cuh"
#include "polypath/device/grid_relaxed.cuh"

namespace polypath {

template <>
SIMT_DEVICE void match_queues<device::partitioned>(const MatchQueuesArgs& args) {
  using Matcher = device::matcher<device::partitioned, kMaxPerQueue>;
  // Longer ones a warp would match alone while others of its block rest.
  const std::uint32_t max_of_a_warp = args.queues > 1 ? 256 : 64;
  const simt::this_block block;
  auto& memory = *simt::dynamic_shared<typename Matcher::storage>();
  const unsigned warps = simt::block_size() / simt::kWarp;
  const auto is_long = [&](const device::match_batch& batch) {
    return batch.message_count > max_of_a_warp || batch.receive_count > max_of_a_warp;
  };
  std::uint32_t matches = 0;
  std::uint32_t refused = 0;
  const auto count = [&](const device::match_outcome& outcome) {
    matches += outcome.matches;
    refused += outcome.status != device::match_status::done ? 1 : 0;
  };
  for (std::uint32_t first = simt::block_index() * warps; first < args.queues;
       first += simt::grid_size() * warps) {
    const std::uint32_t own = first + simt::warp_index();
    bool has_long = false;
    if (own < args.queues) {
      const device::match_batch batch = batch_of_queue(args, own);
      has_long = is_long(batch);
      if (!has_long) {
        const device::match_outcome outcome =
            match_queue<Matcher>(simt::this_warp{}, memory, args, own, batch);
        if (simt::lane_index() == 0) count(outcome);
      }
    }
    if (!simt::barrier_any(0, simt::block_size(), has_long)) continue;
    for (std::uint32_t queue = first; queue < first + warps && queue < args.queues; ++queue) {
      const device::match_batch batch = batch_of_queue(args, queue);
      if (!is_long(batch)) continue;
      const device::match_outcome outcome = match_queue<Matcher>(block, memory, args, queue, batch);
      if (simt::thread_index() == 0) count(outcome);
    }
  }
  matches = device::detail::sum_of(block, memory, matches);
  refused = device::detail::sum_of(block, memory, refused);
  if (simt::thread_index() != 0) return;
  if (matches != 0)
    simt::fetch_add<device::device_scope>(&args.state->matches, std::uint64_t{matches});
  if (refused != 0)
    simt::fetch_add<device::device_scope>(&args.state->refused, std::uint64_t{refused});
}

POLYPATH_MATCH_KERNELS(partitioned);
POLYPATH_MATCH_TOGETHER(partitioned, 2);

}  // namespace polypath
