#include "tune/pattern.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>

#include "base/parallel_for.hpp"

namespace polypath {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::uint64_t kWord = sizeof(std::uint64_t);
/// Words that are generated at once: few enough to stay in the first-level cache.
constexpr std::uint64_t kBlockWords = 512;
/// Below this much for each, a thread costs more than it gains.
constexpr std::uint64_t kBytesPerThread = std::uint64_t{1} << 20;

/// Calls visit(position, bytes of the pattern) for consecutive pieces of [offset, offset + size),
/// until it returns false. `position` counts from 0.
template <typename Visit>
void for_each_piece(std::uint64_t size, std::uint64_t seed, std::uint64_t offset, Visit visit) {
  std::array<std::uint64_t, kBlockWords> words;
  for (std::uint64_t position = 0; position < size;) {
    const std::uint64_t first_word = (offset + position) / kWord;
    const std::uint64_t skip = (offset + position) % kWord;
    for (std::uint64_t i = 0; i < kBlockWords; ++i) words[i] = pattern_word(seed, first_word + i);
    const auto bytes = std::as_bytes(std::span(words))
                           .subspan(skip, std::min(kBlockWords * kWord - skip, size - position));
    if (!visit(position, bytes)) return;
    position += bytes.size();
  }
}

}  // namespace

void fill_pattern(std::span<std::byte> memory, std::uint64_t seed, std::uint64_t offset) {
  parallel_for(memory.size(), kBytesPerThread, [=](std::uint64_t begin, std::uint64_t end) {
    for_each_piece(end - begin, seed, offset + begin,
                   [&](std::uint64_t position, std::span<const std::byte> bytes) {
                     std::memcpy(memory.data() + begin + position, bytes.data(), bytes.size());
                     return true;
                   });
  });
}

std::optional<std::uint64_t> first_difference(std::span<const std::byte> memory, std::uint64_t seed,
                                              std::uint64_t offset) {
  std::atomic<std::uint64_t> first = memory.size();
  parallel_for(
      memory.size(), kBytesPerThread, [&, seed, offset](std::uint64_t begin, std::uint64_t end) {
        for_each_piece(
            end - begin, seed, offset + begin,
            [&](std::uint64_t position, std::span<const std::byte> expected) {
              const std::uint64_t at = begin + position;
              if (at > first.load(std::memory_order_relaxed)) return false;
              const auto actual = memory.subspan(at, expected.size());
              if (std::memcmp(actual.data(), expected.data(), expected.size()) == 0) return true;
              const auto [here, there] = std::ranges::mismatch(actual, expected);
              std::uint64_t difference = at + static_cast<std::uint64_t>(here - actual.begin());
              std::uint64_t known = first.load();
              while (difference < known && !first.compare_exchange_weak(known, difference)) {
              }
              return false;
            });
      });
  if (first == memory.size()) return std::nullopt;
  return first.load();
}

}  // namespace polypath
