// Memory of a channel for tests on the host: of each rank its part, and one window.
#pragma once

#include <cstring>
#include <vector>

#include "polypath/device/channel_view.hpp"
#include "queue_memory.hpp"

namespace polypath::test {

struct ChannelShape {
  std::uint32_t ranks = 2;
  std::uint32_t contexts = 1;
  std::uint32_t units_log2 = 8;
  std::uint32_t requests_log2 = 6;
  std::uint32_t unexpected_log2 = 6;
  std::uint32_t eager_bytes = 200;
};

class ChannelMemory {
 public:
  ChannelMemory(const ChannelShape& shape, std::size_t window_bytes) : patience_(shape.ranks) {
    device::channel_view of{};
    of.ranks = shape.ranks;
    of.contexts = shape.contexts;
    of.units_log2 = shape.units_log2;
    of.requests_log2 = shape.requests_log2;
    of.unexpected_log2 = shape.unexpected_log2;
    of.windows = 1;
    of.eager_bytes = shape.eager_bytes;
    of.number = 53;
    for (std::uint32_t rank = 0; rank < of.ranks; ++rank) {
      parts_.emplace_back(of.bytes(), 0);
      windows_.emplace_back(window_bytes, 0xA5);
    }
    for (std::uint32_t rank = 0; rank < of.ranks; ++rank) {
      of.mine = parts_[rank].get<unsigned char>();
      of.rank = rank;
      of.wait_ctx = patience_[rank].wait_ctx();
      auto* const table = parts_[rank].get<std::uint64_t>();
      for (std::uint32_t peer = 0; peer < of.ranks; ++peer) {
        table[peer] = reinterpret_cast<std::uint64_t>(parts_[peer].get<unsigned char>());
        table[of.table_words() + peer] =
            reinterpret_cast<std::uint64_t>(windows_[peer].get<unsigned char>());
      }
      table[of.ranks] = of.bytes();
      table[of.table_words() + of.ranks] = window_bytes;
      views_.push_back(of);
    }
  }
  [[nodiscard]] const device::channel_view& view(std::uint32_t rank) const { return views_[rank]; }
  [[nodiscard]] unsigned char* window(std::uint32_t rank) {
    return windows_[rank].get<unsigned char>();
  }
  PatienceMemory& wait_ctx(std::uint32_t rank) { return patience_[rank]; }

 private:
  std::vector<LineBytes> parts_;
  std::vector<LineBytes> windows_;
  std::vector<PatienceMemory> patience_;
  std::vector<device::channel_view> views_;
};

}  // namespace polypath::test
