// What messages hold, so that a receiver can tell of every byte whether it is right.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "memory.hpp"

namespace mpi_bench {

/// The `bytes` at `offset` of a message whose random contents `seed` determines; messages of
/// different seeds have nothing in common.
class Message {
 public:
  Message(std::size_t offset, std::size_t bytes, std::uint64_t seed)
      : offset_(offset), bytes_(bytes), seed_(seed) {}

  /// Writes the contents where the message lies in the memory that it is sent from.
  void fill(Memory& memory) const;
  /// Writes other contents, of which no byte is right, where the message will be received.
  void poison(Memory& memory) const;

  struct Difference {
    std::size_t count = 0;  ///< bytes that are not right
    std::size_t first = 0;  ///< offset of the first of them in the message
  };
  /// Compares every byte that was received.
  [[nodiscard]] Difference compare(const Memory& memory) const;

 private:
  /// The bytes from `from` on, a multiple of 8; `mask` changes each word of 8 of them.
  void contents(std::size_t from, std::span<std::byte> to, std::uint64_t mask) const;
  void write(Memory& memory, std::uint64_t mask) const;

  std::size_t offset_;
  std::size_t bytes_;
  std::uint64_t seed_;
};

/// A seed from several numbers; each of them, and their order, matters.
std::uint64_t seed_of(std::initializer_list<std::uint64_t> numbers) noexcept;

}  // namespace mpi_bench
