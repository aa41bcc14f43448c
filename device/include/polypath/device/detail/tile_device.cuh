// Tiles on the device (tile.cuh says what they are).
#pragma once

#include "polypath/device/tile.cuh"

namespace polypath::device {
namespace detail {

template <int kInFlight, tile_access kLoad, tile_access kStore, typename Word, typename Group,
          int kMaxPointers>
POLYPATH_DEVICE void copy_words(const Group& group,
                                const pointer_list<unsigned char, kMaxPointers>& to,
                                const unsigned char* from, std::size_t offset, std::size_t count) {
  const Word* const src = reinterpret_cast<const Word*>(from + offset);
  const auto put = [&](std::size_t i, const Word& word) {
    std::size_t place = offset + i * sizeof(Word);
    if constexpr (kMaxPointers > 1) place = opaque(place);  // as in reduce_words()
#pragma unroll
    for (int d = 0; d < kMaxPointers; ++d)
      if (d < to.count) store_as<kStore>(reinterpret_cast<Word*>(to.at[d] + place), word);
  };
  stride<kInFlight>(group, count,
                    [&](auto number, auto is_there, std::size_t first, std::size_t step) {
                      constexpr int kNumber = decltype(number)::value;
                      Word words[kNumber] = {};
#pragma unroll
                      for (int k = 0; k < kNumber; ++k)
                        if (is_there(k)) words[k] = load_as<kLoad>(src + first + k * step);
#pragma unroll
                      for (int k = 0; k < kNumber; ++k)
                        if (is_there(k)) put(first + k * step, words[k]);
                    });
}

template <int kInFlight, tile_access kLoad, tile_access kStore, typename Word, typename Group,
          int kMaxPointers>
POLYPATH_DEVICE void copy_range(const Group& group,
                                const pointer_list<unsigned char, kMaxPointers>& to,
                                const unsigned char* from, std::size_t bytes) {
  const std::size_t to_word = (sizeof(Word) - residue(from, sizeof(Word))) % sizeof(Word);
  const std::size_t head = to_word < bytes ? to_word : bytes;
  const std::size_t words = (bytes - head) / sizeof(Word);
  const std::size_t done = head + words * sizeof(Word);
  copy_words<1, kLoad, kStore, std::uint8_t>(group, to, from, 0, head);
  copy_words<kInFlight, kLoad, kStore, Word>(group, to, from, head, words);
  copy_words<1, kLoad, kStore, std::uint8_t>(group, to, from, done, bytes - done);
}

template <int kInFlight, int kPack, tile_access kLoad, tile_access kStore, typename Group,
          typename Operation, int kTo, int kFrom>
POLYPATH_DEVICE void reduce_words(
    const Group& group, const Operation& operation,
    const pointer_list<typename Operation::Element, kTo>& to,
    const pointer_list<const typename Operation::Element, kFrom>& from, std::size_t offset,
    std::size_t count) {
  using Element = typename Operation::Element;
  using Word = Pack<Element, kPack>;
  // As they were loaded: elements of two bytes would each have a register of their own.
  using Raw = Bits<Word>;
  // The first element of pack i. Opaque: else a loop keeps an address of its own for each place.
  const auto place_of = [&](std::size_t i) { return opaque(offset + i * kPack); };
  const auto combine = [&](const Raw(&words)[kFrom], std::size_t i) {
    typename Operation::Sum sums[kPack];
    if constexpr (has_tree_order<Operation>::value) {
      combine_as_tree<0, kFrom>(operation, from.count, sums, [&](auto source, auto& into) {
        const Word word = bit_cast<Word>(words[decltype(source)::value]);
#pragma unroll
        for (int e = 0; e < kPack; ++e) into[e] = operation.widen(word.values[e]);
      });
    } else {
#pragma unroll
      for (int s = 0; s < kFrom; ++s)
        if (s < from.count) {
          const Word word = bit_cast<Word>(words[s]);
#pragma unroll
          for (int e = 0; e < kPack; ++e) {
            const auto next = operation.widen(word.values[e]);
            sums[e] = s == 0 ? next : operation.combine(sums[e], next);
          }
        }
    }
    Word result;
#pragma unroll
    for (int e = 0; e < kPack; ++e) result.values[e] = operation.narrow(sums[e]);
    const std::size_t first = place_of(i);
#pragma unroll
    for (int d = 0; d < kTo; ++d)
      if (d < to.count) store_as<kStore>(reinterpret_cast<Word*>(to.at[d] + first), result);
  };
  const auto get = [&](Raw(&words)[kFrom], std::size_t i) {
    const std::size_t first = place_of(i);
#pragma unroll
    for (int s = 0; s < kFrom; ++s)
      if (s < from.count)
        words[s] = load_as<kLoad>(reinterpret_cast<const Raw*>(from.at[s] + first));
  };
  // With values, for where there are fewer sources: what is loaded on a condition and has none
  // before is in registers from the kernel's begin on.
  Raw words[kInFlight][kFrom] = {};
  stride<kInFlight>(group, count,
                    [&](auto number, auto is_there, std::size_t first, std::size_t step) {
                      constexpr int kNumber = decltype(number)::value;
#pragma unroll
                      for (int k = 0; k < kNumber; ++k)
                        if (is_there(k)) get(words[k], first + k * step);
#pragma unroll
                      for (int k = 0; k < kNumber; ++k)
                        if (is_there(k)) combine(words[k], first + k * step);
                    });
}

template <int kInFlight, int kPack, tile_access kLoad, tile_access kStore, typename Group,
          typename Operation, int kTo, int kFrom>
POLYPATH_DEVICE_NOINLINE void call_reduce_words(
    const Group group, const Operation operation,
    const pointer_list<typename Operation::Element, kTo> to,
    const pointer_list<const typename Operation::Element, kFrom> from, std::size_t offset,
    std::size_t count) {
  reduce_words<kInFlight, kPack, kLoad, kStore>(group, operation, to, from, offset, count);
}

/// Calls `reduce(kInFlight, kPack, offset, count)` for the parts of a tile: the first two are
/// std::integral_constants.
template <typename Operation, int kTo, int kFrom, typename Reduce>
POLYPATH_DEVICE void for_parts_of_tile(
    const pointer_list<typename Operation::Element, kTo>& to,
    const pointer_list<const typename Operation::Element, kFrom>& from, std::size_t count,
    const Reduce& reduce) {
  using Element = typename Operation::Element;
  constexpr int kPack = static_cast<int>(16 / sizeof(Element));
  constexpr int kInFlight = kFrom < kLoadsInFlight ? kLoadsInFlight / kFrom : 1;
  using One = std::integral_constant<int, 1>;
  const Element* const first = from.at[0];
  std::size_t head = 0;
  std::size_t packs = 0;
  if (all_alike(to, first, 16) && all_alike(from, first, 16)) {
    const std::size_t to_pack = (16 - residue(first, 16)) % 16 / sizeof(Element);
    head = to_pack < count ? to_pack : count;
    packs = (count - head) / kPack;
  }
  const std::size_t done = head + packs * kPack;
  reduce(One{}, One{}, std::size_t{0}, head);
  reduce(std::integral_constant<int, kInFlight>{}, std::integral_constant<int, kPack>{}, head,
         packs);
  reduce(One{}, One{}, done, count - done);
}

}  // namespace detail

/// Copies `bytes` bytes from `from` to every place of `to`. Less in flight costs fewer registers.
template <tile_access kLoad = tile_access::streaming, tile_access kStore = tile_access::streaming,
          int kInFlight = detail::kLoadsInFlight, typename Group, int kMaxPointers>
POLYPATH_DEVICE void copy_tile(const Group& group,
                               const pointer_list<unsigned char, kMaxPointers>& to,
                               const unsigned char* from, std::size_t bytes) {
  if (detail::all_alike(to, from, 16))
    detail::copy_range<kInFlight, kLoad, kStore, detail::Bits16>(group, to, from, bytes);
  else if (detail::all_alike(to, from, 8))
    detail::copy_range<kInFlight, kLoad, kStore, std::uint64_t>(group, to, from, bytes);
  else if (detail::all_alike(to, from, 4))
    detail::copy_range<kInFlight, kLoad, kStore, std::uint32_t>(group, to, from, bytes);
  else if (detail::all_alike(to, from, 2))
    detail::copy_range<kInFlight, kLoad, kStore, std::uint16_t>(group, to, from, bytes);
  else
    detail::copy_range<kInFlight, kLoad, kStore, std::uint8_t>(group, to, from, bytes);
}

/// The same to one place, in fewer registers: a warp copies chunks, of which all but the first
/// address are in the instructions. What is no whole chunk goes before them.
template <tile_access kLoad = tile_access::streaming, tile_access kStore = tile_access::streaming,
          typename Group>
POLYPATH_DEVICE void copy_chunks(const Group& group, unsigned char* to, const unsigned char* from,
                                 std::size_t bytes) {
  using detail::Bits16;
  constexpr int kWords = 4;
  constexpr std::size_t kChunk = kWords * kWarp * sizeof(Bits16);
  const pointer_list<unsigned char, 1> places{{to}, 1};
  if (!detail::all_alike(places, from, 16)) {
    if (detail::all_alike(places, from, 4))
      detail::copy_range<kWords, kLoad, kStore, std::uint32_t>(group, places, from, bytes);
    else
      detail::copy_range<kWords, kLoad, kStore, std::uint8_t>(group, places, from, bytes);
    return;
  }
  if constexpr (std::is_same_v<Group, this_thread>) {
    detail::copy_range<kWords, kLoad, kStore, Bits16>(group, places, from, bytes);
  } else {
    const unsigned warps = group.size() / kWarp;  // one that is not whole copies no chunk
    const unsigned warp = group.rank() / kWarp;
    const std::size_t to_word = (16 - detail::residue(from, 16)) % 16;
    const std::size_t head = to_word < bytes ? to_word : bytes;
    const auto chunks = static_cast<std::uint32_t>(warps > 0 ? (bytes - head) / kChunk : 0);
    const std::size_t chunked = head + chunks * kChunk;
    const std::size_t words = (bytes - chunked) / sizeof(Bits16);
    const std::size_t done = chunked + words * sizeof(Bits16);
    detail::copy_words<1, kLoad, kStore, std::uint8_t>(group, places, from, 0, head);
    detail::copy_words<2, kLoad, kStore, Bits16>(group, places, from, chunked, words);
    detail::copy_words<1, kLoad, kStore, std::uint8_t>(group, places, from, done, bytes - done);
    const std::size_t first = head + warp * kChunk + group.rank() % kWarp * sizeof(Bits16);
    const auto* src = reinterpret_cast<const Bits16*>(from + first);
    auto* dst = reinterpret_cast<Bits16*>(to + first);
    const unsigned step = warps * kWords * kWarp;
    POLYPATH_NO_UNROLL
    for (std::uint32_t chunk = warp < warps ? warp : chunks; chunk < chunks;
         chunk += warps, src += step, dst += step) {
      Bits16 taken[kWords];
#pragma unroll
      for (int k = 0; k < kWords; ++k) taken[k] = detail::load_as<kLoad>(src + k * kWarp);
#pragma unroll
      for (int k = 0; k < kWords; ++k) detail::store_as<kStore>(dst + k * kWarp, taken[k]);
    }
  }
}

/// Combines `count` elements of every place of `from`, in their order, and stores the results to
/// every place of `to`.
template <tile_access kLoad = tile_access::streaming, tile_access kStore = tile_access::streaming,
          typename Group, typename Operation, int kTo, int kFrom>
POLYPATH_DEVICE void reduce_tile(const Group& group, const Operation& operation,
                                 const pointer_list<typename Operation::Element, kTo>& to,
                                 const pointer_list<const typename Operation::Element, kFrom>& from,
                                 std::size_t count) {
  detail::for_parts_of_tile<Operation>(
      to, from, count, [&](auto in_flight, auto pack, std::size_t offset, std::size_t items) {
        detail::call_reduce_words<decltype(in_flight)::value, decltype(pack)::value, kLoad, kStore>(
            group, operation, to, from, offset, items);
      });
}

/// As above, inlined: for the one place of a kernel that needs its registers. A called function has
/// few, and keeps the rest in local memory.
template <tile_access kLoad = tile_access::streaming, tile_access kStore = tile_access::streaming,
          typename Group, typename Operation, int kTo, int kFrom>
POLYPATH_DEVICE void reduce_tile_inlined(
    const Group& group, const Operation& operation,
    const pointer_list<typename Operation::Element, kTo>& to,
    const pointer_list<const typename Operation::Element, kFrom>& from, std::size_t count) {
  detail::for_parts_of_tile<Operation>(
      to, from, count, [&](auto in_flight, auto pack, std::size_t offset, std::size_t items) {
        detail::reduce_words<decltype(in_flight)::value, decltype(pack)::value, kLoad, kStore>(
            group, operation, to, from, offset, items);
      });
}

}  // namespace polypath::device
