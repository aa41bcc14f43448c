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
      : patience_(ranks) {
    using View = device::active_messages_view;
    View of{};
    of.ranks = ranks;
    of.shards_log2 = shards_log2;
    of.cell_bytes = cell_bytes;
    of.capacity_log2 = capacity_log2;
    of.segment_log2 = segment_log2;
    of.number = 47;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) parts_.emplace_back(of.bytes(), 0);
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      of.mine = parts_[rank].get<unsigned char>();
      of.rank = rank;
      of.wait_ctx = patience_[rank].wait_ctx();
      for (std::uint32_t peer = 0; peer < ranks; ++peer) {
        unsigned char* const theirs = parts_[peer].get<unsigned char>();
        std::memcpy(of.mine + peer * sizeof theirs, &theirs, sizeof theirs);
        for (const View::kind kind : {View::request, View::reply})
          for (std::uint32_t shard = 0; shard < of.shards(); ++shard)
            std::memset(of.mine + of.ring_offset(kind, peer, shard) + View::kClosed, 0xFF, 8);
      }
      views_.push_back(of);
    }
  }
  [[nodiscard]] const device::active_messages_view& view(std::uint32_t rank) const {
    return views_[rank];
  }
  PatienceMemory& wait_ctx(std::uint32_t rank) { return patience_[rank]; }

 private:
  std::vector<LineBytes> parts_;
  std::vector<PatienceMemory> patience_;
  std::vector<device::active_messages_view> views_;
};

}  // namespace polypath::test
