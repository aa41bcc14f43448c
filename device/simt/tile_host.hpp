// Tiles on the host (tile.cuh says what they are).
#pragma once

#include <algorithm>
#include <array>
#include <memory>

#include "polypath/device/tile.cuh"

namespace polypath::device {
namespace detail {

/// Calls `move(first, count)` for each part of `items` items that is the calling thread's.
template <typename Group, typename Move>
void move_own_parts(const Group& group, const void* tile, std::size_t items, const Move& move) {
  const unsigned parts = parts_of_tile();
  std::size_t first = 0;
  for (unsigned part = 0; part < parts; ++part) {
    const std::size_t end = items * (part + 1) / parts;
    if (end > first && owner_of_part(tile, part, group.size()) == group.rank())
      move(first, end - first);
    first = end;
  }
}

constexpr Loading loading(tile_access access) {
  switch (access) {
    case tile_access::plain: return Loading::plain;
    case tile_access::constant: return Loading::constant;
    case tile_access::streaming: return Loading::streaming;
    case tile_access::relaxed: return Loading::relaxed;
  }
  return Loading::plain;
}
constexpr Storing storing(tile_access access) {
  return access == tile_access::relaxed ? Storing::relaxed : Storing::plain;
}

}  // namespace detail

/// Copies `bytes` bytes from `from` to every place of `to`.
template <tile_access kLoad = tile_access::streaming, tile_access kStore = tile_access::streaming,
          int = detail::kLoadsInFlight, typename Group, int kMaxPointers>
void copy_tile(const Group& group, const pointer_list<unsigned char, kMaxPointers>& to,
               const unsigned char* from, std::size_t bytes) {
  static_assert(kStore != tile_access::constant);
  detail::move_own_parts(group, to.at[0], bytes, [&](std::size_t first, std::size_t count) {
    const auto buffer = std::make_unique_for_overwrite<unsigned char[]>(count);
    const detail::LoadPart part{buffer.get(), from + first, count};
    detail::load_bytes(&part, 1, detail::loading(kLoad));
    for (int d = 0; d < to.count; ++d)
      detail::store_bytes(to.at[d] + first, buffer.get(), count, detail::storing(kStore));
  });
}

/// The same to one place.
template <tile_access kLoad = tile_access::streaming, tile_access kStore = tile_access::streaming,
          typename Group>
void copy_chunks(const Group& group, unsigned char* to, const unsigned char* from,
                 std::size_t bytes) {
  copy_tile<kLoad, kStore>(group, pointer_list<unsigned char, 1>{{to}, 1}, from, bytes);
}

/// Combines `count` elements of every place of `from`, in their order, and stores the results to
/// every place of `to`.
template <tile_access kLoad = tile_access::streaming, tile_access kStore = tile_access::streaming,
          typename Group, typename Operation, int kTo, int kFrom>
void reduce_tile(const Group& group, const Operation& operation,
                 const pointer_list<typename Operation::Element, kTo>& to,
                 const pointer_list<const typename Operation::Element, kFrom>& from,
                 std::size_t count) {
  static_assert(kStore != tile_access::constant);
  using Element = typename Operation::Element;
  detail::move_own_parts(group, to.at[0], count, [&](std::size_t first, std::size_t elements) {
    const auto buffer =
        std::make_unique_for_overwrite<Element[]>(elements * static_cast<std::size_t>(from.count));
    std::array<detail::LoadPart, kFrom> loads;
    std::array<const Element*, kFrom> sources;
    for (int s = 0; s < from.count; ++s) {
      Element* const into = buffer.get() + static_cast<std::size_t>(s) * elements;
      sources[s] = into;
      loads[s] = {into, from.at[s] + first, elements * sizeof(Element)};
    }
    detail::load_bytes(loads.data(), static_cast<std::size_t>(from.count), detail::loading(kLoad));
    for (std::size_t e = 0; e < elements; ++e) {
      if constexpr (detail::has_tree_order<Operation>::value) {
        typename Operation::Sum sum[1];
        detail::combine_as_tree<0, kFrom>(operation, from.count, sum, [&](auto source, auto& into) {
          into[0] = operation.widen(sources[decltype(source)::value][e]);
        });
        buffer[e] = operation.narrow(sum[0]);
        continue;
      }
      typename Operation::Sum sum = operation.widen(sources[0][e]);
      for (int s = 1; s < from.count; ++s)
        sum = operation.combine(sum, operation.widen(sources[s][e]));
      buffer[e] = operation.narrow(sum);
    }
    for (int d = 0; d < to.count; ++d)
      detail::store_bytes(to.at[d] + first, buffer.get(), elements * sizeof(Element),
                          detail::storing(kStore));
  });
}

/// The same.
template <tile_access kLoad = tile_access::streaming, tile_access kStore = tile_access::streaming,
          typename Group, typename Operation, int kTo, int kFrom>
void reduce_tile_inlined(const Group& group, const Operation& operation,
                         const pointer_list<typename Operation::Element, kTo>& to,
                         const pointer_list<const typename Operation::Element, kFrom>& from,
                         std::size_t count) {
  reduce_tile<kLoad, kStore>(group, operation, to, from, count);
}

}  // namespace polypath::device
