// Calls over relays, for tests of the kernels and of their defects.
#pragma once

#include <string>
#include <vector>

#include "host_kernel_ranks.hpp"

namespace polypath::test {

/// Rings and tiles so small that calls have many tiles; as many channels as three periods of ways.
inline ScratchShape relay_shape(std::uint32_t ranks, std::uint32_t relays) {
  return {ranks, 3 * (ranks - 1 + relays), 4, 512, 8 * 1024, 0};
}

/// A call by channels over all relays.
inline CollectiveCase relay_case(CollectiveOp op, std::uint32_t ranks, std::uint32_t relays,
                                 std::uint64_t count) {
  CollectiveCase what;
  what.op = op;
  what.type = DataType::float32;
  what.ranks = ranks;
  what.count = count;
  what.blocks = relay_shape(ranks, relays).channels;
  what.tile_bytes = 256;
  what.is_relayed = true;
  return what;
}

/// Calls of all kinds over relays and without, one after another: slots of one are still read when
/// another one begins. Results may go straight into some ranks' buffers.
inline std::vector<CollectiveCase> relay_row(Random& random, std::uint32_t ranks,
                                             std::uint32_t relays) {
  constexpr CollectiveOp kOps[] = {CollectiveOp::allreduce,  CollectiveOp::all_gather,
                                   CollectiveOp::all_to_all, CollectiveOp::broadcast,
                                   CollectiveOp::reduce,     CollectiveOp::reduce_scatter};
  std::vector<CollectiveCase> cases;
  for (int call = 0; call < 6; ++call) {
    const bool is_long = random() % 2 == 0;
    CollectiveCase what =
        relay_case(kOps[random() % 6], ranks, relays, 1 + random() % (is_long ? 6000 : 600));
    what.root = static_cast<std::uint32_t>(random() % ranks);
    what.stages = random() % 3 == 0 ? 1 : 2;
    what.is_relayed = random() % 4 != 0;
    if (random() % 2 == 0) what.blocks = static_cast<std::uint32_t>(1 + random() % what.blocks);
    if (random() % 2 == 0) what.type = DataType::bfloat16;
    if (random() % 3 == 0) what.order = SumOrder::tree;
    if (random() % 3 == 0 && what.op != CollectiveOp::all_gather)
      what.placement = Placement::in_place;
    if (random() % 3 == 0) make_blocks_unlike(random, what);
    if (random() % 3 == 0 &&
        (what.op == CollectiveOp::all_gather || what.op == CollectiveOp::reduce_scatter)) {
      make_uneven(random, what);
      what.placement = random() % 2 == 0 ? Placement::apart : Placement::own_part;
    }
    if (random() % 2 == 0) make_windows_unlike(random, what);
    cases.push_back(what);
  }
  return cases;
}

/// The number of the row that was found wrong; 0: none of them.
inline int first_wrong_relay_row(int rows, std::string* text = nullptr) {
  Random random(11);
  for (int row = 1; row <= rows; ++row) {
    const auto ranks = static_cast<std::uint32_t>(2 + random() % 3);
    const auto relays = static_cast<std::uint32_t>(1 + random() % 3);
    HostKernelRanks group(relay_shape(ranks, relays), relays);
    const std::string wrong = group.run_row(relay_row(random, ranks, relays), random());
    if (text != nullptr) *text = wrong;
    if (!wrong.empty()) return row;
  }
  return 0;
}

}  // namespace polypath::test
