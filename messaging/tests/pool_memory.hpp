// Memory of a pool for tests on the host, and what a run leaves there.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "polypath/device/pool_view.hpp"

namespace polypath::test {

/// Zeros, and blocks that are anything.
class PoolMemory {
 public:
  PoolMemory(std::uint32_t slabs, std::uint32_t slab_log2)
      : layout_(device::layout_of_pool(slabs, slab_log2)), all_(layout_.bytes + 4096, 0xA5) {
    std::fill(begin() + layout_.zeros, begin() + layout_.bytes, 0);
  }
  void clear_blocks() { std::fill(begin(), begin() + layout_.zeros, 0); }
  [[nodiscard]] device::pool_view view() { return layout_.view_at(begin()); }
  [[nodiscard]] std::size_t granules() const { return layout_.zeros / 64; }
  [[nodiscard]] unsigned char* begin() {
    const auto address = reinterpret_cast<std::uintptr_t>(all_.data());
    return all_.data() + (4096 - address % 4096) % 4096;
  }
  [[nodiscard]] std::size_t bytes() const { return layout_.bytes; }
  [[nodiscard]] std::uint64_t count(std::uint64_t device::pool_counts::* which) {
    std::uint64_t sum = 0;
    for (std::uint32_t shard = 0; shard < 1U << layout_.shards_log2; ++shard)
      sum += view().counts[shard].*which;
    return sum;
  }
  /// Empty, or what is left once all has been freed.
  [[nodiscard]] std::string left() {
    const device::pool_view pool = view();
    for (std::uint32_t slab = 0; slab < pool.slabs; ++slab)
      if ((pool.gates[slab] & device::pool_view::kGateCount) != 0)
        return "a gate that counts something";
    const std::size_t words = std::size_t{pool.slabs} << (pool.slab_log2 - pool.kBitsLog2);
    if (std::any_of(pool.bits, pool.bits + words, [](std::uint32_t bits) { return bits != 0; }))
      return "a bit that is set";
    if (count(&device::pool_counts::allocated) != count(&device::pool_counts::freed))
      return "more allocated than freed";
    return "";
  }

 private:
  device::pool_layout layout_;
  std::vector<unsigned char> all_;
};

}  // namespace polypath::test
