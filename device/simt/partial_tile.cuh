// Tiles of partial sums: elements that were combined so far, in the type in which they are combined
// (float for the 16-bit types), and that are combined further.
//
// As reduce_tile (tile.cuh says what that is): all threads of the group call with the same
// arguments, and nothing is synchronised. Where the type of the elements is that of their sums, a
// partial sum is an element, and reduce_tile does.
#pragma once

#include <type_traits>

#include "simt/platform.cuh"

namespace polypath::simt {

namespace detail {

template <bool kNarrow, typename Operation>
SIMT_DEVICE auto result_of(const Operation& operation, typename Operation::Sum sum) {
  if constexpr (kNarrow)
    return operation.narrow(sum);
  else
    return sum;
}

}  // namespace detail

#if defined(__CUDACC__)

namespace detail {

template <bool kNarrow, int kPack, typename Operation, typename Out, int kFrom>
SIMT_DEVICE void reduce_partial_words(
    const warp_group& group, const Operation& operation, Out* to,
    const typename Operation::Sum* first,
    const pointer_list<const typename Operation::Element, kFrom>& from, std::size_t begin,
    std::size_t end) {
  using Element = typename Operation::Element;
  using Sum = typename Operation::Sum;
  for (std::size_t i = begin + group.rank(); i < end; i += group.size()) {
    Pack<Element, kPack> words[kFrom];
    Pack<Sum, kPack> sums{};
    if (first != nullptr)
      sums = load_streaming(reinterpret_cast<const Pack<Sum, kPack>*>(first) + i);
#pragma unroll
    for (int s = 0; s < kFrom; ++s)
      if (s < from.count)
        words[s] = load_streaming(reinterpret_cast<const Pack<Element, kPack>*>(from.at[s]) + i);
    Pack<Out, kPack> results;
#pragma unroll
    for (int e = 0; e < kPack; ++e) {
      Sum sum = first != nullptr ? sums.values[e] : operation.widen(words[0].values[e]);
#pragma unroll
      for (int s = 0; s < kFrom; ++s)
        if (s < from.count && (s > 0 || first != nullptr))
          sum = operation.combine(sum, operation.widen(words[s].values[e]));
      results.values[e] = result_of<kNarrow>(operation, sum);
    }
    store_streaming(reinterpret_cast<Pack<Out, kPack>*>(to) + i, results);
  }
}

}  // namespace detail

/// Combines `count` elements of `first`, unless it is null, and then of every place of `from`, in
/// their order; stores them to `to`: narrowed, or as sums.
template <bool kNarrow, typename Operation, typename Out, int kFrom>
SIMT_DEVICE void reduce_partial_tile(
    const warp_group& group, const Operation& operation, Out* to,
    const typename Operation::Sum* first,
    const pointer_list<const typename Operation::Element, kFrom>& from, std::size_t count) {
  constexpr int kPack = static_cast<int>(16 / sizeof(typename Operation::Sum));
  const auto whole = [](const auto* address) {
    return detail::residue(address, kPack * sizeof(*address)) == 0;
  };
  bool packs = whole(to) && (first == nullptr || whole(first));
#pragma unroll
  for (int s = 0; s < kFrom; ++s)
    if (s < from.count) packs &= whole(from.at[s]);
  const std::size_t done = packs ? count / kPack * kPack : 0;
  detail::reduce_partial_words<kNarrow, kPack>(group, operation, to, first, from, 0, done / kPack);
  detail::reduce_partial_words<kNarrow, 1>(group, operation, to, first, from, done, count);
}

#else

template <bool kNarrow, typename Operation, typename Out, int kFrom>
void reduce_partial_tile(const warp_group& group, const Operation& operation, Out* to,
                         const typename Operation::Sum* first,
                         const pointer_list<const typename Operation::Element, kFrom>& from,
                         std::size_t count) {
  using Element = typename Operation::Element;
  using Sum = typename Operation::Sum;
  detail::move_own_parts(group, to, count, [&](std::size_t begin, std::size_t elements) {
    const auto sums = std::make_unique_for_overwrite<Sum[]>(elements);
    const auto words =
        std::make_unique_for_overwrite<Element[]>(elements * static_cast<std::size_t>(from.count));
    const auto results = std::make_unique_for_overwrite<Out[]>(elements);
    std::array<detail::LoadPart, kFrom + 1> loads;
    std::size_t parts = 0;
    if (first != nullptr) loads[parts++] = {sums.get(), first + begin, elements * sizeof(Sum)};
    for (int s = 0; s < from.count; ++s)
      loads[parts++] = {words.get() + static_cast<std::size_t>(s) * elements, from.at[s] + begin,
                        elements * sizeof(Element)};
    detail::load_bytes(loads.data(), parts, detail::Loading::streaming);
    for (std::size_t e = 0; e < elements; ++e) {
      Sum sum = first != nullptr ? sums[e] : operation.widen(words[e]);
      for (int s = first != nullptr ? 0 : 1; s < from.count; ++s)
        sum = operation.combine(sum,
                                operation.widen(words[static_cast<std::size_t>(s) * elements + e]));
      results[e] = detail::result_of<kNarrow>(operation, sum);
    }
    detail::store_bytes(to + begin, results.get(), elements * sizeof(Out), detail::Storing::plain);
  });
}

#endif

}  // namespace polypath::simt
