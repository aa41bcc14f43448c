// Bytes in bulk, moved by all threads of a group: from one place to several, or the elements of
// several places combined and the results stored to several.
//
// All threads of the group (group.cuh) call with the same arguments. Nothing is synchronised,
// neither before nor after: which thread moves which byte is open, so the group needs a barrier
// between what must come before a tile and the tile, and between the tile and what tells others of
// it. The ranges do not overlap, but a destination may be a source.
//
// On the device every thread moves words of 16 bytes, kInFlight of them at once, or smaller words
// where the addresses demand it: they go best when all addresses are equal modulo 16. On the host a
// tile is cut into a few parts, and each is moved at once by the thread that the seed gives it to.
#pragma once

#include <type_traits>

#include "polypath/device/group.cuh"

namespace polypath::device {

/// How a tile loads or stores; the functions of platform.cuh.
enum class tile_access { plain, constant, streaming, relaxed };

/// Addresses: the first `count` (1 to kMaxPointers) of them. A smaller kMaxPointers costs fewer
/// registers.
template <typename T, int kMaxPointers>
struct pointer_list {
  T* at[kMaxPointers];
  int count;
};

// What reduce_tile does with elements: a class with
//   using Element = ...;      as it lies in memory
//   using Sum = ...;          as it is combined
//   Sum widen(Element) const;  Sum combine(Sum, Sum) const;  Element narrow(Sum) const;
// Sources are combined in their order, one after another: narrow((w(0) + w(1)) + w(2) ...). An
// operation that has a type `combines_as_tree` combines them as a balanced binary tree instead:
// narrow((w(0) + w(1)) + (w(2) + w(3)) ...). With n sources the left half are the first 2^k of
// them, the largest power of 2 below n, and each half is a tree again.

namespace detail {

inline constexpr int kLoadsInFlight = 8;  // of a thread, before its first store

template <tile_access kAccess, typename T>
POLYPATH_DEVICE T load_as(const T* from) {
  if constexpr (kAccess == tile_access::plain) return load(from);
  if constexpr (kAccess == tile_access::constant) return load_constant(from);
  if constexpr (kAccess == tile_access::streaming) return load_streaming(from);
  if constexpr (kAccess == tile_access::relaxed) return load_relaxed(from);
}

template <tile_access kAccess, typename T>
POLYPATH_DEVICE void store_as(T* to, const T& value) {
  static_assert(kAccess != tile_access::constant);
  if constexpr (kAccess == tile_access::plain) store(to, value);
  if constexpr (kAccess == tile_access::streaming) store_streaming(to, value);
  if constexpr (kAccess == tile_access::relaxed) store_relaxed(to, value);
}

template <typename T, int kCount>
struct alignas(sizeof(T) * kCount) Pack {
  T values[kCount];
};

POLYPATH_DEVICE std::size_t residue(const void* address, std::size_t word) {
  return reinterpret_cast<std::uintptr_t>(address) % word;
}

/// True when all places differ from `address` by multiples of `word`.
template <typename T, int kMaxPointers>
POLYPATH_DEVICE bool all_alike(const pointer_list<T, kMaxPointers>& places, const void* address,
                               std::size_t word) {
  bool alike = true;
  for (int i = 0; i < kMaxPointers; ++i)
    if (i < places.count) alike &= residue(places.at[i], word) == residue(address, word);
  return alike;
}

template <typename Operation, typename = void>
struct has_tree_order : std::false_type {};
template <typename Operation>
struct has_tree_order<Operation, std::void_t<typename Operation::combines_as_tree>>
    : std::true_type {};

/// Combines the first `count` (1 or more) of the sources kFirst to kFirst + kSources - 1, of
/// kElements elements each, as a tree, into `sums`. `load(source, sums)` gives those of one source;
/// its number is a std::integral_constant.
template <int kFirst, int kSources, typename Operation, int kElements, typename Load>
POLYPATH_DEVICE void combine_as_tree(const Operation& operation, int count,
                                     typename Operation::Sum (&sums)[kElements], const Load& load) {
  static_assert((kSources & (kSources - 1)) == 0, "halves are halves");
  if constexpr (kSources == 1) {
    load(std::integral_constant<int, kFirst>{}, sums);
  } else {
    constexpr int kHalf = kSources / 2;
    combine_as_tree<kFirst, kHalf>(operation, count, sums, load);
    if (kFirst + kHalf < count) {
      typename Operation::Sum right[kElements];
      combine_as_tree<kFirst + kHalf, kHalf>(operation, count, right, load);
      POLYPATH_UNROLL
      for (int e = 0; e < kElements; ++e) sums[e] = operation.combine(sums[e], right[e]);
    }
  }
}

struct all_there {
  POLYPATH_DEVICE bool operator()(int) const { return true; }
};
struct those_left {
  unsigned rank;  ///< of the thread in its group
  unsigned step;  ///< the group's size
  unsigned left;  ///< items of the group
  POLYPATH_DEVICE bool operator()(int k) const { return rank + k * step < left; }
};

/// The last items of a group, kInFlight for each thread or fewer, of which `i` is the calling
/// thread's first: together, by the least of kInFlight, half of it, and so on that will do.
template <int kInFlight, typename Several>
POLYPATH_DEVICE void stride_rest(std::size_t i, const those_left& items, const Several& several) {
  constexpr int kHalf = (kInFlight + 1) / 2;
  if constexpr (kInFlight > 1) {
    if (items.left <= kHalf * items.step) {
      stride_rest<kHalf>(i, items, several);
      return;
    }
  }
  several(std::integral_constant<int, kInFlight>{}, items, i, items.step);
}

/// The group's way over `count` items: kInFlight of a thread together, a group's width apart, and
/// at the end what is left, also together. For them `several(number, is_there, first, step)` is
/// called: items first + k step, k less than `number` (a std::integral_constant), of which
/// is_there(k) are.
template <int kInFlight, typename Group, typename Several>
POLYPATH_DEVICE void stride(const Group& group, std::size_t count, const Several& several) {
  constexpr std::integral_constant<int, kInFlight> kAll{};
  const std::size_t step = group.size();
  const std::size_t together = kInFlight * step;
  std::size_t i = group.rank();
  std::size_t left = count;  // as all threads of the group see it: none goes another way
  those_left items{static_cast<unsigned>(i), static_cast<unsigned>(step), 0};
  if constexpr (kInFlight <= 2) {
    // One form of `several`: code that is new to a multiprocessor costs a small call more than
    // conditions.
    for (; left > 0; left -= items.left, i += together) {
      items.left = static_cast<unsigned>(left < together ? left : together);
      several(kAll, items, i, step);
    }
  } else {
    POLYPATH_NO_UNROLL
    for (; left >= together; left -= together, i += together) several(kAll, all_there{}, i, step);
    items.left = static_cast<unsigned>(left);
    if (left > 0) stride_rest<kInFlight>(i, items, several);
  }
}

}  // namespace detail
}  // namespace polypath::device

#if defined(__CUDACC__)
#include "polypath/device/detail/tile_device.cuh"
#else
#include "simt/tile_host.hpp"
#endif
