// Tiles: every byte of them and no other, for all sizes and addresses.
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "simt/platform.cuh"
#include "simt/run.hpp"

namespace polypath::simt {
namespace {

constexpr int kMaxPointers = 3;

struct CopyArgs {
  pointer_list<unsigned char, kMaxPointers> to;
  const unsigned char* from;
  std::size_t bytes;
};

SIMT_KERNEL(test_copy_tile, 128, CopyArgs args) {
  // Block 0 by all threads, block 1 by its last two warps.
  const std::size_t half = args.bytes / 2;
  if (block_index() == 0) {
    copy_tile(warp_group::block(), args.to, args.from, half);
    return;
  }
  const warp_group last(block_size() / kWarp - 2, 2, 1);
  for (int d = 0; d < args.to.count; ++d) args.to.at[d] += half;
  if (last.holds_me()) copy_tile(last, args.to, args.from + half, args.bytes - half);
}

/// A thread of a group, for the way that devices take over a tile.
struct Thread {
  std::size_t number;
  std::size_t threads;
  [[nodiscard]] std::size_t rank() const { return number; }
  [[nodiscard]] std::size_t size() const { return threads; }
};

template <int kInFlight>
void expect_each_item_once() {
  SCOPED_TRACE(kInFlight);
  for (const std::size_t threads : {1, 3, 32})
    for (std::size_t count = 0; count < 20 * threads; ++count) {
      std::vector<int> visits(count);
      for (std::size_t thread = 0; thread < threads; ++thread)
        device::detail::stride<kInFlight>(
            Thread{thread, threads}, count,
            [&](auto number, auto is_there, std::size_t first, std::size_t step) {
              for (int k = 0; k < decltype(number)::value; ++k)
                if (is_there(k)) ++visits.at(first + static_cast<std::size_t>(k) * step);
            });
      ASSERT_EQ(visits, std::vector<int>(count, 1)) << threads << " threads, " << count;
    }
}

TEST(Tiles, WayOverItems_VisitsEachOnce) {
  expect_each_item_once<1>();
  expect_each_item_once<2>();
  expect_each_item_once<3>();
  expect_each_item_once<4>();
  expect_each_item_once<5>();
  expect_each_item_once<8>();
}

TEST(Tiles, CopyEveryByteAndNoneBeside) {
  std::mt19937_64 random(7);
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const std::size_t bytes = random() % 300'000;
    std::vector<unsigned char> from(bytes + 64);
    for (unsigned char& each : from) each = static_cast<unsigned char>(random());
    std::vector<std::vector<unsigned char>> to(kMaxPointers,
                                               std::vector<unsigned char>(bytes + 64, 0xC3));
    CopyArgs args{};
    const std::size_t skew = random() % 32;
    args.from = from.data() + skew;
    args.bytes = bytes;
    args.to.count = static_cast<int>(seed % kMaxPointers) + 1;
    std::vector<std::size_t> skews;
    for (std::size_t d = 0; d < kMaxPointers; ++d) {
      skews.push_back(random() % 32);
      args.to.at[d] = to[d].data() + skews[d];
    }
    ASSERT_EQ("", run({{launch("test_copy_tile", 0, 2, 128, args)}}, {.seed = seed}));
    for (std::size_t d = 0; d < kMaxPointers; ++d) {
      std::vector<unsigned char> expected(bytes + 64, 0xC3);
      if (static_cast<int>(d) < args.to.count)
        std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(skew), bytes,
                    expected.begin() + static_cast<std::ptrdiff_t>(skews[d]));
      ASSERT_EQ(expected, to[d]) << "seed " << seed << ", destination " << d;
    }
  }
}

struct SumOfHalves {
  using Element = bfloat16;
  using Sum = float;
  SIMT_DEVICE Sum widen(Element value) const { return to_float(value); }
  SIMT_DEVICE Sum combine(Sum a, Sum b) const { return a + b; }
  SIMT_DEVICE Element narrow(Sum sum) const { return to_bfloat16(sum * scale); }
  float scale;
};

struct ReduceArgs {
  pointer_list<bfloat16, kMaxPointers> to;
  pointer_list<const bfloat16, 4> from;
  std::size_t count;
  float scale;
};

SIMT_KERNEL(test_reduce_tile, 64, ReduceArgs args) {
  reduce_tile(warp_group::block(), SumOfHalves{args.scale}, args.to, args.from, args.count);
}

TEST(Tiles, ReduceInTheOrderOfTheSources) {
  std::mt19937_64 random(3);
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    const std::size_t count = random() % 20'000;
    std::vector<std::vector<bfloat16>> from(4, std::vector<bfloat16>(count + 8));
    for (auto& source : from)
      for (bfloat16& each : source)
        each = to_bfloat16(
            std::ldexp(static_cast<float>(random() % 1000), static_cast<int>(random() % 20)));
    std::vector<std::vector<std::uint16_t>> to(kMaxPointers,
                                               std::vector<std::uint16_t>(count + 8, 0xC3C3));
    ReduceArgs args{};
    args.count = count;
    args.scale = 0.25F;
    args.from.count = static_cast<int>(random() % 4) + 1;
    for (std::size_t s = 0; s < 4; ++s) args.from.at[s] = from[s].data() + seed % 3;
    args.to.count = static_cast<int>(random() % kMaxPointers) + 1;
    for (std::size_t d = 0; d < kMaxPointers; ++d)
      args.to.at[d] = reinterpret_cast<bfloat16*>(to[d].data() + d);
    ASSERT_EQ("", run({{launch("test_reduce_tile", 0, 1, 64, args)}}, {.seed = seed}));
    for (std::size_t d = 0; d < kMaxPointers; ++d) {
      std::vector<std::uint16_t> expected(count + 8, 0xC3C3);
      if (static_cast<int>(d) < args.to.count) {
        for (std::size_t e = 0; e < count; ++e) {
          float sum = to_float(args.from.at[0][e]);
          for (int s = 1; s < args.from.count; ++s) sum += to_float(args.from.at[s][e]);
          expected[d + e] = to_bfloat16(sum * 0.25F).bits;
        }
      }
      ASSERT_EQ(expected, to[d]) << "seed " << seed << ", destination " << d;
    }
  }
}

}  // namespace
}  // namespace polypath::simt
