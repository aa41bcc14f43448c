#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "collectives/plan/schedule_builder.hpp"
#include "collectives/plan/schedules.hpp"

namespace polypath {
namespace {

class HostPart {
 public:
  HostPart(const Node& node, const CollectiveRequest& request, std::uint64_t chunk_bytes)
      : node_(node),
        request_(request),
        ranks_(request.ranks()),
        builder_(node, request, {"reduce-scatter", "all-gather"}) {
    const std::uint64_t granule = 128 / size_of(request.type);
    const std::uint64_t target = std::max<std::uint64_t>(1, chunk_bytes / size_of(request.type));
    slice_ = (target + granule - 1) / granule * granule;
    const std::uint64_t whole = slice_ * static_cast<std::uint64_t>(ranks_);
    for (std::uint64_t first = 0; first < request.count;) {
      std::uint64_t count = whole;
      if (chunks_.size() < kFirstChunks.size())
        count = std::max(granule, slice_ / kFirstChunks.at(chunks_.size()) / granule * granule) *
                static_cast<std::uint64_t>(ranks_);
      chunks_.push_back({first, std::min(count, request.count - first)});
      first += chunks_.back().count;
    }
    for (std::uint64_t slot = 0; slot < kScratchSlots; ++slot)
      for (int i = 1; i < ranks_; ++i) received_.push_back(builder_.allot_scratch(slice_, false));
    // Pieces of one place have to begin alike: what is no whole chunk has a place of its own.
    std::array<std::uint64_t, kHostSlots> slots{};
    std::uint64_t uses = 0;
    for (const ElementRange& chunk : chunks_) {
      if (chunk.count < whole) {
        hosted_.push_back(builder_.allot_host(chunk.count, false));
        continue;
      }
      std::uint64_t& slot = slots.at(uses % kHostSlots);
      if (uses < kHostSlots) slot = builder_.allot_host(whole, false);
      hosted_.push_back(slot);
      ++uses;
    }
  }

  HostPartMemory memory() && {
    const CollectiveSchedule schedule = std::move(builder_).finish();
    return {schedule.scratch_bytes, schedule.host_bytes};
  }

  CollectiveSchedule make() && {
    for (std::size_t chunk = 0; chunk < chunks_.size(); ++chunk)
      for (int owner = 0; owner < ranks_; ++owner) {
        ElementRange& part =
            slices_.emplace_back(part_of(chunks_[chunk].count, static_cast<std::uint64_t>(ranks_),
                                         static_cast<std::uint64_t>(owner), request_.type));
        part.first += chunks_[chunk].first;
      }
    for (std::size_t i = 0; i < chunks_.size(); ++i) {
      reduce_scatter(i);
      gather(i);
    }
    CollectiveSchedule schedule = std::move(builder_).finish();
    schedule.waits_aside = true;
    return schedule;
  }

 private:
  /// Pieces alternate, so that one is filled while others are read. What goes down waits for all
  /// ranks that read what was there, so host memory has one more.
  static constexpr std::uint64_t kScratchSlots = 2;
  static constexpr std::uint64_t kHostSlots = 3;
  /// The first chunks, as parts of a whole one: so that the links of host memory soon have work.
  static constexpr std::array<std::uint64_t, 2> kFirstChunks{4, 2};
  /// The number of others to which a rank sends at once.
  static constexpr int kMaxOutstanding = 3;
  /// Streams of a rank: out by the other rank, up by the run, down by the host memory.
  enum Queue : std::uint8_t { kSum, kOut, kUp = kOut + kMaxOutstanding, kDown = kUp + 2 };

  [[nodiscard]] const ElementRange& slice(std::size_t chunk, int owner) const {
    return slices_[chunk * static_cast<std::size_t>(ranks_) + static_cast<std::size_t>(owner)];
  }

  /// Where the owner takes what `sender` gives.
  [[nodiscard]] Place received(std::size_t chunk, int owner, int sender) const {
    const int which = (sender - owner + ranks_) % ranks_ - 1;
    const std::size_t slot = chunk % kScratchSlots * static_cast<std::size_t>(ranks_ - 1);
    return ScheduleBuilder::scratch(owner, received_[slot + static_cast<std::size_t>(which)]);
  }

  [[nodiscard]] Place hosted(std::size_t chunk, int host, int owner) const {
    const std::uint64_t before = slice(chunk, owner).first - chunks_[chunk].first;
    return {BufferKind::host, false, host, hosted_[chunk] + before * size_of(request_.type)};
  }

  [[nodiscard]] int near_host(int rank) const {
    const int gpu = request_.gpus[static_cast<std::size_t>(rank)];
    return node_.gpus[static_cast<std::size_t>(gpu)].numa;
  }

  void reduce_scatter(std::size_t chunk) {
    for (int k = 1; k < ranks_; ++k)
      for (int rank = 0; rank < ranks_; ++rank) {
        const int owner = (rank + k) % ranks_;
        const ElementRange part = slice(chunk, owner);
        builder_.copy(0, kOut + (k - 1) % kMaxOutstanding, builder_.input(rank, part.first),
                      received(chunk, owner, rank), part.count);
      }
    for (int owner = 0; owner < ranks_; ++owner) {
      const ElementRange part = slice(chunk, owner);
      std::vector<Place> operands;
      for (int rank = 0; rank < ranks_; ++rank)
        operands.push_back(rank == owner ? builder_.input(owner, part.first)
                                         : received(chunk, owner, rank));
      builder_.reduce(0, kSum, owner, operands, builder_.output(owner, part.first), part.count);
    }
  }

  /// Down once into each host memory that is near to one of the others.
  void gather(std::size_t chunk) {
    for (int owner = 0; owner < ranks_; ++owner) {
      const ElementRange part = slice(chunk, owner);
      for (int host = 0; host < static_cast<int>(node_.hosts.size()); ++host) {
        bool is_read = false;
        for (int rank = 0; rank < ranks_; ++rank)
          is_read = is_read || (rank != owner && near_host(rank) == host);
        if (is_read)
          builder_.copy(1, kDown + host, builder_.output(owner, part.first),
                        hosted(chunk, host, owner), part.count);
      }
    }
    // Up in two runs: what owners before this rank have, and what those after it have.
    for (int rank = 0; rank < ranks_; ++rank) {
      run(chunk, rank, 0, rank);
      run(chunk, rank, rank + 1, ranks_);
    }
  }

  void run(std::size_t chunk, int rank, int first, int end) {
    std::vector<Piece> pieces;
    for (int owner = first; owner < end; ++owner) {
      const ElementRange part = slice(chunk, owner);
      pieces.push_back(
          {hosted(chunk, near_host(rank), owner), builder_.output(rank, part.first), part.count});
    }
    builder_.copy_run(1, kUp + (first == 0 ? 0 : 1), pieces);
  }

  const Node& node_;
  const CollectiveRequest& request_;
  int ranks_;
  ScheduleBuilder builder_;
  std::uint64_t slice_ = 0;  // elements of an owner's part of a whole chunk
  std::vector<ElementRange> chunks_;
  std::vector<ElementRange> slices_;     // of each owner of each chunk
  std::vector<std::uint64_t> received_;  // of each slot and sender
  std::vector<std::uint64_t> hosted_;    // of each chunk
};

}  // namespace

CollectiveSchedule host_part_schedule(const Node& node, const CollectiveRequest& request,
                                      std::uint64_t chunk_bytes) {
  return HostPart(node, request, chunk_bytes).make();
}

HostPartMemory host_part_memory(const Node& node, const CollectiveRequest& request,
                                std::uint64_t chunk_bytes) {
  return HostPart(node, request, chunk_bytes).memory();
}

std::string why_no_host_part(const Node& node, const CollectiveRequest& request) {
  const auto numa = [&](int gpu) { return node.gpus[static_cast<std::size_t>(gpu)].numa; };
  for (const int gpu : request.gpus)
    for (const int other : request.gpus)
      for (const auto& [from, to] : {std::pair(MemoryId::gpu(gpu), MemoryId::host(numa(other))),
                                     std::pair(MemoryId::host(numa(gpu)), MemoryId::gpu(gpu))})
        if (!node.find_link(from, to))
          return fmt::format("there is no link from {} to {}", to_string(from), to_string(to));
  return {};
}

}  // namespace polypath
