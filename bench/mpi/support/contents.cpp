#include "contents.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

namespace mpi_bench {
namespace {

constexpr std::size_t kPiece = std::size_t{4} << 20;  ///< bytes in host memory at a time
constexpr std::byte kPoison{0xA5};                    ///< any mask but 0 changes every byte

/// The output function of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): a permutation of 64 bits.
std::uint64_t mix(std::uint64_t word) noexcept {
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9ULL;
  word = (word ^ (word >> 27)) * 0x94d049bb133111ebULL;
  return word ^ (word >> 31);
}

constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15ULL;  ///< SplitMix64's, odd

}  // namespace

std::uint64_t seed_of(std::initializer_list<std::uint64_t> numbers) noexcept {
  std::uint64_t seed = 0;
  for (const std::uint64_t number : numbers) seed = mix(seed + kStep + mix(number + kStep));
  return seed;
}

void Message::fill(Memory& memory) const { write(memory, std::byte{0}); }

void Message::poison(Memory& memory) const { write(memory, kPoison); }

Message::Difference Message::compare(const Memory& memory) const {
  Difference difference;
  std::vector<std::byte> expected(std::min(kPiece, bytes_));
  std::vector<std::byte> received(expected.size());
  for (std::size_t done = 0; done < bytes_; done += expected.size()) {
    const std::size_t piece = std::min(expected.size(), bytes_ - done);
    contents(done, std::span(expected).first(piece));
    memory.read(offset_ + done, std::span(received).first(piece));
    if (std::memcmp(expected.data(), received.data(), piece) == 0) continue;
    for (std::size_t i = 0; i < piece; ++i) {
      if (expected[i] == received[i]) continue;
      if (difference.count++ == 0) difference.first = done + i;
    }
  }
  return difference;
}

/// The bytes from `from` on, a multiple of 8.
void Message::contents(std::size_t from, std::span<std::byte> to) const {
  std::uint64_t state = seed_ + (from / sizeof state) * kStep;
  for (std::size_t done = 0; done < to.size(); done += sizeof state) {
    const std::uint64_t word = mix(state += kStep);
    std::memcpy(to.data() + done, &word, std::min(sizeof word, to.size() - done));
  }
}

void Message::write(Memory& memory, std::byte mask) const {
  std::vector<std::byte> piece(std::min(kPiece, bytes_));
  for (std::size_t done = 0; done < bytes_; done += piece.size()) {
    const auto part = std::span(piece).first(std::min(piece.size(), bytes_ - done));
    contents(done, part);
    for (std::byte& one : part) one ^= mask;
    memory.write(offset_ + done, part);
  }
}

}  // namespace mpi_bench
