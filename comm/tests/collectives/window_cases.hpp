// Calls whose results may go straight into the receivers' buffers, for tests of the kernels and of
// their defects.
#pragma once

#include <string>
#include <vector>

#include "host_kernel_ranks.hpp"

namespace polypath::test {

inline constexpr std::uint32_t kWindowRanks = 4;

/// Rings and tiles so small that calls have many tiles.
inline ScratchShape window_shape(std::uint32_t ranks = kWindowRanks) {
  return {ranks, 3, 4, 512, 8 * 1024, 0};
}

/// A call by channels with results on ring 1 of every rank.
inline CollectiveCase window_case(CollectiveOp op, std::uint64_t count) {
  CollectiveCase what;
  what.op = op;
  what.type = DataType::float32;
  what.ranks = kWindowRanks;
  what.count = count;
  what.blocks = 3;
  what.tile_bytes = 256;
  return what;
}

/// Calls of one shape and then of others, each with buffers of its own: what is taken for the call
/// before shows. Some ranks announce and some do not, in places of any alignment.
inline std::vector<CollectiveCase> window_row(Random& random) {
  constexpr CollectiveOp kOps[] = {CollectiveOp::allreduce, CollectiveOp::all_gather,
                                   CollectiveOp::all_to_all, CollectiveOp::broadcast,
                                   CollectiveOp::reduce};
  std::vector<CollectiveCase> cases;
  for (int shape = 0; shape < 3; ++shape) {
    CollectiveCase what = window_case(kOps[random() % 5], 1 + random() % 1500);
    what.root = static_cast<std::uint32_t>(random() % kWindowRanks);
    what.stages = random() % 3 == 0 ? 1 : 2;
    what.blocks = static_cast<std::uint32_t>(1 + random() % 3);
    what.lag = 2;
    if (random() % 2 == 0) what.type = DataType::bfloat16;
    if (random() % 3 == 0 && what.op != CollectiveOp::all_gather)
      what.placement = Placement::in_place;
    if (random() % 3 == 0) make_blocks_unlike(random, what);
    if (random() % 3 == 0 && what.op == CollectiveOp::all_gather) make_uneven(random, what);
    for (int call = 0; call < 3; ++call) {
      if (random() % 3 == 0) make_windows_unlike(random, what);
      cases.push_back(what);
    }
  }
  return cases;
}

/// The number of the row that was found wrong; 0: none of them.
inline int first_wrong_window_row(int rows, std::string* text = nullptr) {
  Random random(5);
  for (int row = 1; row <= rows; ++row) {
    HostKernelRanks ranks(window_shape());
    const std::string wrong = ranks.run_row(window_row(random), random());
    if (text != nullptr) *text = wrong;
    if (!wrong.empty()) return row;
  }
  return 0;
}

/// A call that is shorter on rank 0 than on the others; empty where nothing was stored outside of
/// its buffer.
inline std::string run_shorter_on_first(CollectiveOp op, std::uint64_t seed) {
  const CollectiveCase longer = window_case(op, 3008);
  std::vector<CollectiveCase> by_rank(kWindowRanks, longer);
  by_rank[0].count = 1504;
  HostKernelRanks ranks(window_shape());
  return ranks.run_apart(by_rank, 0, seed);
}

/// What ranks have announced in the last channel of a call into buffers `shift` elements away from
/// where they may: the number of senders that were given a place.
inline int places_announced(const CollectiveCase& what, std::uint64_t seed) {
  HostKernelRanks ranks(window_shape());
  if (!ranks.run_row({what}, seed).empty()) return -1;
  int places = 0;
  for (std::uint32_t sender = 0; sender < kWindowRanks; ++sender)
    for (std::uint32_t receiver = 0; receiver < kWindowRanks; ++receiver)
      places += ranks.window(sender, what.blocks - 1, receiver) != 0 ? 1 : 0;
  return places;
}

/// How many places are still announced after a call that rank 2 did not make.
inline int places_after_timeout(CollectiveOp op, std::uint64_t seed) {
  const CollectiveCase what = window_case(op, 3008);
  HostKernelRanks ranks(window_shape());
  (void)ranks.run_without(2, what, seed);
  int places = 0;
  for (std::uint32_t channel = 0; channel < what.blocks; ++channel)
    for (std::uint32_t sender = 0; sender < kWindowRanks; ++sender)
      for (std::uint32_t receiver = 0; receiver < kWindowRanks; ++receiver)
        places += ranks.window(sender, channel, receiver) != 0 ? 1 : 0;
  return places;
}

}  // namespace polypath::test
