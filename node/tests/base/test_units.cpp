#include "base/units.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"

namespace polypath {
namespace {

TEST(Units, ReadsSizesOfPeople) {
  EXPECT_EQ(parse_bytes("0"), 0u);
  EXPECT_EQ(parse_bytes("4096"), 4096u);
  EXPECT_EQ(parse_bytes("64K"), 64 * kKiB);
  EXPECT_EQ(parse_bytes("64KiB"), 64 * kKiB);
  EXPECT_EQ(parse_bytes("1m"), kMiB);
  EXPECT_EQ(parse_bytes("3mib"), 3 * kMiB);
  EXPECT_EQ(parse_bytes("2G"), 2 * kGiB);
  EXPECT_EQ(parse_bytes("7B"), 7u);
  EXPECT_EQ(parse_bytes("64KB"), 64 * kKiB);
  EXPECT_EQ(parse_bytes("64 MB"), 64 * kMiB);
  EXPECT_EQ(parse_bytes("64 mib"), 64 * kMiB);
  EXPECT_EQ(parse_bytes("1.5M"), 1536 * kKiB);
  EXPECT_EQ(parse_bytes("1.25 GiB"), 1280 * kMiB);
  EXPECT_EQ(parse_bytes("0.5K"), 512u);
  EXPECT_EQ(parse_bytes("1T"), kTiB);
  EXPECT_EQ(parse_bytes("0.015625T"), 16 * kGiB);
  EXPECT_EQ(parse_bytes("9223372036854775808"), std::uint64_t{1} << 63);
}

TEST(Units, RefusesWhatIsNoSize) {
  for (const char* text : {"", "K", "-1", "+1", ".5M", "1.M", "1,5M", "64P", "64iB", "64 M B",
                           "1e6", "0x10", "1M1", "1.0000000M", " 1"})
    EXPECT_THROW(parse_bytes(text), InvalidArgument) << '"' << text << '"';
}

TEST(Units, RefusesPartsOfBytes) {
  for (const char* text : {"1.5", "0.3K", "1.0001K", "7.1B"})
    EXPECT_THROW(parse_bytes(text), InvalidArgument) << text;
}

TEST(Units, RefusesSizesPast2To63) {
  for (const char* text :
       {"9223372036854775809", "8589934593G", "8388609T", "8388608.5T", "99999999999999999999"})
    EXPECT_THROW(parse_bytes(text), InvalidArgument) << text;
}

TEST(Units, WritesTheShortestExactForm) {
  EXPECT_EQ(format_bytes(0), "0");
  EXPECT_EQ(format_bytes(1), "1");
  EXPECT_EQ(format_bytes(1536), "1536");
  EXPECT_EQ(format_bytes(1024), "1K");
  EXPECT_EQ(format_bytes(1536 * kKiB), "1536K");
  EXPECT_EQ(format_bytes(64 * kMiB), "64M");
  EXPECT_EQ(format_bytes(3 * kGiB), "3G");
  EXPECT_EQ(format_bytes(4096 * kGiB), "4T");
}

TEST(Units, ParsesWhatItFormats) {
  for (std::uint64_t bytes = 1; bytes < (std::uint64_t{1} << 62); bytes = bytes * 3 + 1024)
    EXPECT_EQ(parse_bytes(format_bytes(bytes)), bytes);
}

TEST(Units, TimeAndRateAreInverse) {
  EXPECT_DOUBLE_EQ(transfer_us(400'000'000, 400.0), 1000.0);
  EXPECT_DOUBLE_EQ(rate_gbps(400'000'000, 1000.0), 400.0);
  EXPECT_EQ(rate_gbps(1, 0.0), 0.0);
}

}  // namespace
}  // namespace polypath
