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
  ChannelMemory(const ChannelShape& shape, std::size_t window_bytes) : wait_contexts_(shape.ranks) {
    device::channel_view view{};
    view.ranks = shape.ranks;
    view.contexts = shape.contexts;
    view.units_log2 = shape.units_log2;
    view.requests_log2 = shape.requests_log2;
    view.unexpected_log2 = shape.unexpected_log2;
    view.windows = 1;
    view.eager_bytes = shape.eager_bytes;
    view.number = 53;
    for (std::uint32_t rank = 0; rank < view.ranks; ++rank) {
      parts_.emplace_back(view.bytes(), 0);
      windows_.emplace_back(window_bytes, 0xA5);
    }
    for (std::uint32_t rank = 0; rank < view.ranks; ++rank) {
      view.local = parts_[rank].get<unsigned char>();
      view.rank = rank;
      view.wait_ctx = wait_contexts_[rank].wait_ctx();
      auto* const table = parts_[rank].get<std::uint64_t>();
      for (std::uint32_t peer = 0; peer < view.ranks; ++peer) {
        table[peer] = reinterpret_cast<std::uint64_t>(parts_[peer].get<unsigned char>());
        table[view.table_words() + peer] =
            reinterpret_cast<std::uint64_t>(windows_[peer].get<unsigned char>());
      }
      table[view.ranks] = view.bytes();
      table[view.table_words() + view.ranks] = window_bytes;
      views_.push_back(view);
    }
  }
  [[nodiscard]] const device::channel_view& view(std::uint32_t rank) const { return views_[rank]; }
  [[nodiscard]] unsigned char* window(std::uint32_t rank) {
    return windows_[rank].get<unsigned char>();
  }
  WaitContextMemory& wait_ctx(std::uint32_t rank) { return wait_contexts_[rank]; }

 private:
  std::vector<LineBytes> parts_;
  std::vector<LineBytes> windows_;
  std::vector<WaitContextMemory> wait_contexts_;
  std::vector<device::channel_view> views_;
};

}  // namespace polypath::test
