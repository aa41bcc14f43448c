// What Memory has given out, by address. For the backends.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "polypath/uniconn/types.hpp"

namespace polypath::uniconn::detail {

/// With a handle of the library's for each. For one thread at a time, as all of one rank.
template <typename Handle>
class Pieces {
 public:
  struct Piece {
    std::uintptr_t begin = 0;
    std::size_t bytes = 0;
    Handle handle{};
    [[nodiscard]] std::size_t offset_of(const void* address) const noexcept {
      return reinterpret_cast<std::uintptr_t>(address) - begin;
    }
  };

  void add(const void* address, std::size_t bytes, Handle handle) {
    const Piece piece{reinterpret_cast<std::uintptr_t>(address), bytes, handle};
    pieces_.insert(std::ranges::upper_bound(pieces_, piece.begin, {}, &Piece::begin), piece);
  }
  /// Throws unless `address` is the begin of one.
  Handle take(const void* address) {
    const auto it =
        std::ranges::find(pieces_, reinterpret_cast<std::uintptr_t>(address), &Piece::begin);
    if (it == pieces_.end())
      throw error(POLYPATH_INVALID_ARGUMENT,
                  "Memory::Free: not what Memory::Alloc gave, or freed already");
    const Handle handle = it->handle;
    pieces_.erase(it);
    return handle;
  }
  /// Null: `address` is in none.
  [[nodiscard]] const Piece* find(const void* address) const noexcept {
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    auto next = std::ranges::upper_bound(pieces_, at, {}, &Piece::begin);
    if (next == pieces_.begin()) return nullptr;
    --next;
    return at - next->begin < next->bytes ? &*next : nullptr;
  }
  /// Throws unless all of the range is in one; `what` names the argument.
  [[nodiscard]] const Piece& at(const void* address, std::size_t bytes, const char* what) const {
    const Piece* const piece = find(address);
    if (piece == nullptr)
      throw error(
          POLYPATH_INVALID_ARGUMENT,
          (std::string(what) + (address == nullptr ? " is null" : " is not from Memory::Alloc"))
              .c_str());
    require_room(*piece, address, bytes, what);
    return *piece;
  }
  /// Throws for a range that begins in one and ends past it. Whether it begins in one.
  bool holds(const void* address, std::size_t bytes, const char* what) const {
    const Piece* const piece = find(address);
    if (piece != nullptr) require_room(*piece, address, bytes, what);
    return piece != nullptr;
  }
  [[nodiscard]] const std::vector<Piece>& all() const noexcept { return pieces_; }

 private:
  static void require_room(const Piece& piece, const void* address, std::size_t bytes,
                           const char* what) {
    const std::size_t room = piece.bytes - piece.offset_of(address);
    if (bytes > room)
      throw error(POLYPATH_INVALID_ARGUMENT,
                  (std::string(what) + ": " + std::to_string(bytes) +
                   " bytes, but the memory ends " + "after " + std::to_string(room))
                      .c_str());
  }

  std::vector<Piece> pieces_;  // by address
};

}  // namespace polypath::uniconn::detail
