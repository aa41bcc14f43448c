// Ranks whose kernels run as host builds on this program's memory (simt/run.hpp): rows of calls, checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "collective_case.hpp"
#include "collectives/kernels/relay_layout.h"
#include "comm/wait_error.hpp"
#include "simt/run.hpp"

namespace polypath::test {

class HostKernelRanks {
 public:
  /// `relays`: GPUs that are no ranks, whose memory calls over relays use.
  explicit HostKernelRanks(const ScratchShape& shape, std::uint32_t relays = 0);

  const ScratchShape& shape() const { return shape_; }
  wait_error& status(std::uint32_t rank) { return ranks_[rank].status; }
  std::uint32_t& abort_flag(std::uint32_t rank) { return ranks_[rank].abort_flag; }

  /// The number of the call in a mark that a rank has from `sender` (call_meeting.cuh).
  std::uint32_t marked_call(std::uint32_t rank, std::uint32_t half, std::uint32_t sender) const;

  /// What `receiver` announced last of a channel to a rank: an address, or 0 (result_windows.cuh).
  std::uint64_t window(std::uint32_t rank, std::uint32_t channel, std::uint32_t receiver) const;

  /// The next call has this number among those of cells, as after `number` calls.
  void set_calls_of_cells(std::uint64_t number);
  /// As many calls of all families have been made.
  void set_calls(std::uint64_t count);

  /// Called for each access to global memory from now on.
  void watch_accesses(std::function<void(std::uintptr_t at, std::size_t bytes, bool writes)> look) {
    look_ = std::move(look);
  }

  /// From now on what a warp stores of a line comes in parts, as on paths that were not tried.
  void tear_lines() { has_whole_lines_ = false; }

  /// Launches the calls one after another on each rank; `seed` decides everything else. Empty, or
  /// what was wrong: with the run, or with the memory of a rank: at the end, and of some calls
  /// as a kernel found it that came next on the stream.
  std::string run_row(const std::vector<CollectiveCase>& cases, std::uint64_t seed);

  /// run_row() of several communicators at once: row i is that of communicator i, whose ranks are
  /// on the same GPUs as those of the others. A GPU runs `blocks_of_device` blocks at a time.
  static std::string run_together(const std::vector<HostKernelRanks*>& communicators,
                                  const std::vector<std::vector<CollectiveCase>>& rows,
                                  unsigned blocks_of_device, std::uint64_t seed);

  /// run_row(), but rank `missing` makes none of the calls; what the run says.
  std::string run_without(std::uint32_t missing, const CollectiveCase& what, std::uint64_t seed);

  /// The calls by all ranks but `late`, which time out; then the first of them by `late`. Empty,
  /// also where that times out, or what was wrong. `uncounted`: the planted fault that no call by
  /// cells or lines is counted.
  std::string run_late(std::uint32_t late, const std::vector<CollectiveCase>& cases,
                       std::uint64_t seed, bool uncounted);

  /// Whether any tile has been in a slot of this ring since the scratch was made.
  bool has_used_slots(std::uint32_t ring) const;

  /// Whether any tile has been in memory of this relay.
  bool has_used_relay(std::uint32_t relay) const;
  /// When a channel of the last call of a rank had its first tile, and its last, in ns.
  std::pair<std::uint32_t, std::uint32_t> channel_ns(std::uint32_t rank,
                                                     std::uint32_t channel) const;

  /// One call, of which each rank makes its own; what the run says, or what was stored outside of a
  /// rank's `out`. `flipped`: bits of the mark of rank 1.
  std::string run_apart(const std::vector<CollectiveCase>& by_rank, std::uint32_t flipped,
                        std::uint64_t seed);

 private:
  /// As vectors are aligned to less than a scratch must be.
  struct alignas(kScratchGranule) Line {
    std::byte bytes[kScratchGranule];
  };
  struct Rank {
    std::vector<Line> scratch;
    std::vector<Line> lines;
    std::vector<std::uint32_t> channel_ns;
    wait_error status{};
    std::uint32_t abort_flag = 0;
    std::uint32_t reports = 0;
  };

  void set_word(std::uint64_t offset, std::uint64_t value);

  struct Calls;
  Calls prepare(const std::vector<CollectiveCase>& cases, std::uint64_t seed);
  /// As prepare(), and after some calls of a rank a kernel that takes what it finds in its memory.
  Calls prepare_row(const std::vector<CollectiveCase>& cases, std::uint64_t seed);
  void add_memory(Calls& calls) const;
  /// What is wrong with the memory of a rank after the calls, or was right after one; empty:
  /// nothing.
  std::string difference_after(const Calls& calls, const std::vector<CollectiveCase>& cases) const;
  /// As large on each relay.
  RelayLayout relay_layout() const;
  /// The launch of a rank's call on this memory.
  simt::Launch launch_of(const CollectiveCase& what, std::uint32_t rank, unsigned char* memory,
                         const Image& image, std::uint32_t flipped = 0);

  std::function<void(std::uintptr_t, std::size_t, bool)> look_;
  ScratchShape shape_;
  bool has_whole_lines_ = true;
  std::vector<Rank> ranks_;
  std::vector<std::vector<Line>> relays_;
};

}  // namespace polypath::test
