#include "contents.hpp"

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

namespace mpi_bench {
namespace {

constexpr std::size_t kPiece = std::size_t{16} << 20;  ///< bytes in host memory at a time
constexpr std::size_t kSlice = std::size_t{1} << 20;   ///< bytes of a thread, at least
constexpr unsigned int kMaxThreads = 8;
constexpr std::uint64_t kPoison =
    0xa5a5a5a5a5a5a5a5;  ///< no byte is 0: the mask changes every byte

constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15;  ///< SplitMix64's, odd

/// The output function of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): a permutation of 64 bits.
std::uint64_t mix(std::uint64_t word) noexcept {
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9;
  word = (word ^ (word >> 27)) * 0x94d049bb133111eb;
  return word ^ (word >> 31);
}

/// Half of the processors: other ranks do the same.
std::size_t threads() noexcept {
  return std::clamp(std::thread::hardware_concurrency() / 2, 1U, kMaxThreads);
}

/// The bytes from `from` on, a multiple of 8, of the contents of `seed`, changed by `mask`.
void write_slice(std::uint64_t seed, std::size_t from, std::span<std::byte> to,
                 std::uint64_t mask) noexcept {
  std::uint64_t state = seed + (from / sizeof state) * kStep;
  const std::size_t whole = to.size() / sizeof state * sizeof state;
  for (std::size_t done = 0; done < whole; done += sizeof state) {
    const std::uint64_t word = mix(state += kStep) ^ mask;
    std::memcpy(to.data() + done, &word, sizeof word);
  }
  const std::uint64_t last = mix(state + kStep) ^ mask;
  std::memcpy(to.data() + whole, &last, to.size() - whole);
}

}  // namespace

std::uint64_t seed_of(std::initializer_list<std::uint64_t> numbers) noexcept {
  std::uint64_t seed = 0;
  for (const std::uint64_t number : numbers) seed = mix(seed + kStep + mix(number + kStep));
  return seed;
}

void Message::fill(Memory& memory) const { write(memory, 0); }

void Message::poison(Memory& memory) const { write(memory, kPoison); }

Message::Difference Message::compare(const Memory& memory) const {
  Difference difference;
  std::vector<std::byte> expected(std::min(kPiece, bytes_));
  std::vector<std::byte> received(expected.size());
  for (std::size_t done = 0; done < bytes_; done += expected.size()) {
    const std::size_t piece = std::min(expected.size(), bytes_ - done);
    contents(done, std::span(expected).first(piece), 0);
    memory.read(offset_ + done, std::span(received).first(piece));
    if (std::memcmp(expected.data(), received.data(), piece) == 0) continue;
    for (std::size_t i = 0; i < piece; ++i) {
      if (expected[i] == received[i]) continue;
      if (difference.count++ == 0) difference.first = done + i;
    }
  }
  return difference;
}

void Message::contents(std::size_t from, std::span<std::byte> to, std::uint64_t mask) const {
  const std::size_t slice = std::max(kSlice, (to.size() / threads() + 7) / 8 * 8);
  std::vector<std::jthread> others;
  for (std::size_t at = slice; at < to.size(); at += slice)
    others.emplace_back(write_slice, seed_, from + at,
                        to.subspan(at, std::min(slice, to.size() - at)), mask);
  write_slice(seed_, from, to.first(std::min(slice, to.size())), mask);
}

void Message::write(Memory& memory, std::uint64_t mask) const {
  std::vector<std::byte> piece(std::min(kPiece, bytes_));
  for (std::size_t done = 0; done < bytes_; done += piece.size()) {
    const auto part = std::span(piece).first(std::min(piece.size(), bytes_ - done));
    contents(done, part, mask);
    memory.write(offset_ + done, part);
  }
}

}  // namespace mpi_bench
