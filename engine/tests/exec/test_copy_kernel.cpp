// The kernel that copies small blocks, on the host: every byte of random tables, and that these
// tests find each defect of CopyBlocksMutant.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "exec/kernels/copy_blocks.cuh"
#include "simt/run.hpp"

namespace polypath::test {

/// As on GPUs, where a team is a warp.
SIMT_KERNEL(test_copy_by_warps, kCopyBlocksThreads, CopyBlocksArgs args) {
  copy_blocks(device::this_warp{}, args);
}

namespace {

constexpr unsigned char kPoison = 0xA5;

struct Shape {
  const char* kernel;
  unsigned blocks;
  unsigned threads;
  std::uint32_t count;
  std::size_t max_bytes;
};

/// Bytes from random places of one buffer to places of another that are apart from each other.
class CopyKernel : public testing::Test {
 protected:
  /// Empty, or what was wrong.
  std::string run(const Shape& shape, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<unsigned char> src(3 * shape.max_bytes);
    std::ranges::generate(src, std::ref(random));
    std::vector<CopyBlock> table(shape.count);
    std::vector<unsigned char> dst;
    std::vector<unsigned char> expected;
    std::vector<std::size_t> places;
    for (CopyBlock& block : table) {
      // A third at multiples of 16, where a source may be used twice.
      const std::size_t unit = random() % 3 == 0 ? 16 : 1;
      block.bytes = random() % (shape.max_bytes + 1) / unit * unit;
      const std::size_t from = random() % (src.size() - block.bytes) / unit * unit;
      const std::size_t gap = 1 + random() % 40;
      expected.resize((expected.size() + gap + unit - 1) / unit * unit, kPoison);
      places.push_back(expected.size());
      block.ends.src = reinterpret_cast<std::uint64_t>(src.data() + from);
      expected.insert(expected.end(), src.begin() + static_cast<std::ptrdiff_t>(from),
                      src.begin() + static_cast<std::ptrdiff_t>(from + block.bytes));
    }
    expected.resize(expected.size() + 64, kPoison);
    dst.assign(expected.size(), kPoison);
    std::vector<std::size_t> order(shape.count);
    for (std::size_t i = 0; i < order.size(); ++i) {
      order[i] = i;
      table[i].ends.dst = reinterpret_cast<std::uint64_t>(dst.data() + places[i]);
    }
    std::ranges::shuffle(table, random);

    simt::RunOptions options;
    options.seed = seed;
    std::uint64_t stored = 0;
    options.access = [&](std::uintptr_t, std::size_t bytes, bool writes) {
      if (writes) stored += bytes;
    };
    const std::string error = simt::run({{simt::launch(shape.kernel, 0, shape.blocks, shape.threads,
                                                       CopyBlocksArgs{table.data(), shape.count})}},
                                        options);
    if (!error.empty()) return error;
    const auto [wrong, right] = std::ranges::mismatch(dst, expected);
    if (wrong != dst.end()) return "byte " + std::to_string(wrong - dst.begin()) + " differs";
    std::uint64_t bytes = 0;
    for (const CopyBlock& block : table) bytes += block.bytes;
    return stored == bytes ? "" : std::to_string(stored) + " bytes are stored";
  }
};

TEST_F(CopyKernel, CopiesEveryByte) {
  for (const char* const kernel : {"polypath_copy_blocks", "test_copy_by_warps"})
    for (const Shape& shape :
         {Shape{kernel, 1, 32, 1, 100}, Shape{kernel, 8, 64, 0, 100}, Shape{kernel, 3, 96, 2, 5000},
          Shape{kernel, 2, 64, 131, 700}, Shape{kernel, 4, 128, 16, 9000}})
      for (std::uint64_t seed = 1; seed <= 3; ++seed)
        ASSERT_EQ("", run(shape, seed))
            << kernel << " by " << shape.blocks << " x " << shape.threads << ", seed " << seed;
}

class CopyMutant : public CopyKernel, public testing::WithParamInterface<CopyBlocksMutant> {};

TEST_P(CopyMutant, MakesRunsFail) {
  active_mutant<CopyBlocksMutant> = GetParam();
  const std::string error = run({"test_copy_by_warps", 2, 64, 131, 700}, 1);
  active_mutant<CopyBlocksMutant> = CopyBlocksMutant::none;
  EXPECT_NE("", error);
}

INSTANTIATE_TEST_SUITE_P(Of, CopyMutant,
                         testing::Values(CopyBlocksMutant::block_stride,
                                         CopyBlocksMutant::stops_at_last_turn,
                                         CopyBlocksMutant::no_next_block,
                                         CopyBlocksMutant::whole_words_only));

}  // namespace
}  // namespace polypath::test
