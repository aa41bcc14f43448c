// Memory of active messages for tests on the host: one part a rank.
#pragma once

#include <cstring>
#include <vector>

#include "polypath/device/active_messages_view.hpp"
#include "queue_memory.hpp"

namespace polypath::test {

class ActiveMemory {
 public:
  ActiveMemory(std::uint32_t ranks, std::uint32_t shards_log2, std::uint32_t cell_bytes,
               std::uint32_t capacity_log2, std::uint32_t segment_log2)
      : wait_contexts_(ranks) {
    using View = device::active_messages_view;
    View view{};
    view.ranks = ranks;
    view.shards_log2 = shards_log2;
    view.cell_bytes = cell_bytes;
    view.capacity_log2 = capacity_log2;
    view.segment_log2 = segment_log2;
    view.number = 47;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) parts_.emplace_back(view.bytes(), 0);
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      view.local = parts_[rank].get<unsigned char>();
      view.rank = rank;
      view.wait_ctx = wait_contexts_[rank].wait_ctx();
      for (std::uint32_t peer = 0; peer < ranks; ++peer) {
        unsigned char* const remote = parts_[peer].get<unsigned char>();
        std::memcpy(view.local + peer * sizeof remote, &remote, sizeof remote);
        for (const View::kind kind : {View::request, View::reply})
          for (std::uint32_t shard = 0; shard < view.shards(); ++shard)
            std::memset(view.local + view.ring_offset(kind, peer, shard) + View::kClosed, 0xFF, 8);
      }
      views_.push_back(view);
    }
  }
  [[nodiscard]] const device::active_messages_view& view(std::uint32_t rank) const {
    return views_[rank];
  }
  WaitContextMemory& wait_ctx(std::uint32_t rank) { return wait_contexts_[rank]; }

 private:
  std::vector<LineBytes> parts_;
  std::vector<WaitContextMemory> wait_contexts_;
  std::vector<device::active_messages_view> views_;
};

}  // namespace polypath::test
