// Sums within one GPU's memory: what schedules of copies do between their copies (sum_args.h).
// Waits for nothing; the streams order it. Elements are combined in the order of the operands by
// one thread each, half types in float with one rounding where the result is no partial sum; or as
// a tree over the operands, with a rounding at each node.
#pragma once

#include <type_traits>

#include "collectives/kernels/reductions.cuh"
#include "collectives/kernels/sum_args.h"
#include "simt/partial_tile.cuh"

namespace polypath::sums {

/// A block's part: a multiple of what a warp moves at once.
SIMT_DEVICE std::uint64_t share_of(std::uint64_t count) {
  constexpr std::uint64_t kGranule = 512;
  const std::uint64_t even = (count + simt::grid_size() - 1) / simt::grid_size();
  return (even + kGranule - 1) / kGranule * kGranule;
}

template <typename Element, Combining kCombining>
SIMT_DEVICE void run_with(const SumArgs& args) {
  using Operation = Reduction<Element, kCombining>;
  using Sum = typename Operation::Sum;
  const Operation operation(args.reduction, args.type, args.ranks);
  const simt::warp_group block = simt::warp_group::block();
  const std::uint64_t share = share_of(args.count);
  const std::uint64_t begin = simt::block_index() * share;
  if (begin >= args.count) return;
  const std::uint64_t count = args.count - begin < share ? args.count - begin : share;

  // Where sums are of the elements' type, a partial sum is the first element.
  constexpr bool kAlike = std::is_same_v<Element, Sum>;
  const bool leads = kAlike && args.first != nullptr;
  const auto* const first =
      args.first == nullptr ? nullptr : static_cast<const Sum*>(args.first) + begin;
  simt::pointer_list<const Element, static_cast<int>(kMaxRanks)> from;
  from.count = args.from_count + (leads ? 1 : 0);
  POLYPATH_UNROLL
  for (std::uint32_t i = 0; i < kMaxRanks; ++i) {
    const void* const place = !leads ? args.from[i] : i > 0 ? args.from[i - 1] : args.first;
    if (i < static_cast<std::uint32_t>(from.count))
      from.at[i] = static_cast<const Element*>(place) + begin;
  }

  if constexpr (!kAlike) {
    if (args.to_partial) {
      simt::reduce_partial_tile<false>(block, operation, static_cast<Sum*>(args.to) + begin, first,
                                       from, count);
      return;
    }
    if (first != nullptr) {
      simt::reduce_partial_tile<true>(block, operation, static_cast<Element*>(args.to) + begin,
                                      first, from, count);
      return;
    }
  }
  const simt::pointer_list<Element, 1> to{{static_cast<Element*>(args.to) + begin}, 1};
  simt::reduce_tile(block, operation, to, from, count);
}

/// As a tree: a partial sum is an element, as others, and stands where its ranks would.
template <typename Element, Combining kCombining>
SIMT_DEVICE void run_tree_with(const SumArgs& args) {
  const TreeReduction<Element, kCombining> operation(args.reduction, args.type, args.ranks);
  const std::uint64_t share = share_of(args.count);
  const std::uint64_t begin = simt::block_index() * share;
  if (begin >= args.count) return;
  const std::uint64_t count = args.count - begin < share ? args.count - begin : share;
  simt::pointer_list<const Element, static_cast<int>(kMaxRanks)> from;
  from.count = args.from_count;
  POLYPATH_UNROLL
  for (std::uint32_t i = 0; i < kMaxRanks; ++i)
    if (i < args.from_count) from.at[i] = static_cast<const Element*>(args.from[i]) + begin;
  const simt::pointer_list<Element, 1> to{{static_cast<Element*>(args.to) + begin}, 1};
  simt::reduce_tile(simt::warp_group::block(), operation, to, from, count);
}

template <typename Element, SumOrder kOrder>
SIMT_DEVICE void run(const SumArgs& args) {
  // What stays partial is not divided yet.
  const bool divides = args.reduction == Operator::avg && !args.to_partial;
  with_combining(args.reduction == Operator::avg && !divides ? Operator::sum : args.reduction,
                 [&](auto combining) {
                   constexpr Combining kCombining = decltype(combining)::value;
                   if constexpr (kOrder == SumOrder::tree)
                     run_tree_with<Element, kCombining>(args);
                   else
                     run_with<Element, kCombining>(args);
                 });
}

}  // namespace polypath::sums
