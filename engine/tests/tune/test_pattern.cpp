#include "tune/pattern.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "base/units.hpp"

namespace polypath {
namespace {

std::vector<std::byte> pattern(std::uint64_t size, std::uint64_t seed, std::uint64_t offset) {
  std::vector<std::byte> bytes(size);
  fill_pattern(bytes, seed, offset);
  return bytes;
}

TEST(Pattern, AnyRangeIsThatPartOfTheWhole) {
  const auto whole = pattern(20000, 7, 0);
  for (const std::uint64_t offset : {1u, 7u, 8u, 4095u, 4096u, 9999u}) {
    for (const std::uint64_t size : {0u, 1u, 9u, 4096u, 10001u}) {
      const auto part = pattern(size, 7, offset);
      EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + std::ptrdiff_t(offset)))
          << offset << " " << size;
    }
  }
}

TEST(Pattern, LargeRangesAreTheSameAsPieces) {
  const std::uint64_t size = 5 * kMiB + 13;
  const auto whole = pattern(size, 3, 5);
  for (std::uint64_t at = 0; at < size; at += 100001) {
    const auto piece = pattern(std::min<std::uint64_t>(100001, size - at), 3, 5 + at);
    ASSERT_TRUE(std::equal(piece.begin(), piece.end(), whole.begin() + std::ptrdiff_t(at))) << at;
  }
}

TEST(Pattern, SeedsDiffer) { EXPECT_NE(pattern(64, 1, 0), pattern(64, 2, 0)); }

TEST(Pattern, AllByteValuesAreAboutEquallyFrequent) {
  std::vector<int> counts(256);
  for (const std::byte value : pattern(256 * 1000, 11, 0)) ++counts[std::to_integer<int>(value)];
  for (const int count : counts) EXPECT_NEAR(count, 1000, 200);
}

TEST(Pattern, FindsTheFirstOfSeveralDifferences) {
  auto bytes = pattern(8 * kMiB + 5, 4, 3);
  EXPECT_EQ(first_difference(bytes, 4, 3), std::nullopt);
  for (const std::uint64_t at :
       {8 * kMiB + 4, 5 * kMiB + 1, kMiB, std::uint64_t{4097}, std::uint64_t{0}}) {
    bytes[at] ^= std::byte{1};
    EXPECT_EQ(first_difference(bytes, 4, 3), at);
  }
}

TEST(Pattern, EmptyRange_Agrees) { EXPECT_EQ(first_difference({}, 1), std::nullopt); }

}  // namespace
}  // namespace polypath
