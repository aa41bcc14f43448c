// grid_matcher of the relaxed orders: by the whole GPU (matcher_grid.cuh says how it is called).
#pragma once

#include "polypath/device/match_hashed.cuh"
#include "polypath/device/match_mixed.cuh"
#include "polypath/device/match_unique.cuh"
#include "polypath/device/matcher_grid.cuh"

namespace polypath::device {
namespace detail {

/// Of the calling warp's words: those of its block.
POLYPATH_DEVICE std::uint32_t* words_of_block(std::uint32_t* warp_words, unsigned count) {
  return warp_words - warp_index() * count;
}

template <typename Order>
class HashedGrid : public PhasesOfGrid<HashedGrid<Order>, hashed_workspace> {
 public:
  static constexpr unsigned kWarpWords = sizeof(match_sums) / sizeof(std::uint32_t);
  POLYPATH_DEVICE static void run_phase(unsigned phase, std::uint32_t* warp_bits,
                                        unsigned char* workspace, std::uint32_t,
                                        const match_batch& batch) {
    run_table_phase<Order>(hashed_workspace::cut(workspace, batch), phase,
                           *reinterpret_cast<match_sums*>(words_of_block(warp_bits, kWarpWords)));
  }
  POLYPATH_DEVICE static match_outcome outcome_of_phases(unsigned char* workspace, std::uint32_t,
                                                         const match_batch& batch) {
    return outcome_of(reinterpret_cast<const match_words*>(workspace), batch);
  }
};

}  // namespace detail

namespace detail {

/// The phases of the split, and of the partitions that are not long.
class SplitGrid : public PhasesOfGrid<SplitGrid, partitioned_workspace> {
 public:
  static constexpr unsigned kWarpWords = split_memory::kWarpWords;
  POLYPATH_DEVICE static void run_phase(unsigned phase, std::uint32_t* warp_bits,
                                        unsigned char* workspace, std::uint32_t capacity,
                                        const match_batch& batch) {
    const std::uint32_t bits = split_view::bits_for(batch.message_count, batch.receive_count);
    run_split_phase(partitioned_workspace::cut(workspace, capacity, batch, bits), phase,
                    words_of_block(warp_bits, kWarpWords));
  }
};

/// All blocks wait for each other, the `turn`-th time (from 1 on), and see what others stored.
POLYPATH_DEVICE void meet_in_grid(std::uint32_t* arrivals, std::uint32_t turn) {
  block_sync();
  if (thread_index() == 0) {
    fence<device_scope>();
    device::fetch_add<device_scope>(arrivals, 1U);
    const auto all_came = [&] {
      return load_relaxed<device_scope>(arrivals) >= turn * grid_size();
    };
    spin_until(all_came, [] { return false; });
    fence<device_scope>();
  }
  block_sync();
}

}  // namespace detail

template <>
class grid_matcher<partitioned>
    : public detail::PhasesOfGrid<grid_matcher<partitioned>, partitioned_workspace> {
 public:
  static constexpr unsigned kWarpWords = detail::SplitGrid::kWarpWords;
  static_assert(kWarpWords >= grid_matcher<mpi>::kWarpWords, "");
  POLYPATH_DEVICE static void run_phase(unsigned phase, std::uint32_t* warp_bits,
                                        unsigned char* workspace, std::uint32_t capacity,
                                        const match_batch& batch) {
    constexpr unsigned kOfSplit = partitioned_workspace::kOfSplit;
    if (phase < kOfSplit)
      detail::SplitGrid::run(phase, warp_bits, workspace, capacity, batch);
    else if (is_long(workspace))
      grid_matcher<mpi>::run(phase - kOfSplit, warp_bits, of_mpi(workspace, capacity), capacity,
                             batch);
  }
  /// Instead of the phases from kOfSplit on: all of them, by blocks that run at once (a cooperative
  /// launch). Returns the outcome to the first block. Its warps need grid_matcher<mpi>::kWarpWords.
  POLYPATH_DEVICE static match_outcome run_rest(std::uint32_t* warp_bits, unsigned char* workspace,
                                                std::uint32_t capacity, const match_batch& batch) {
    const bool is_full = batch.message_count > capacity || batch.receive_count > capacity;
    if (!is_full && is_long(workspace)) {
      auto* const arrivals = &reinterpret_cast<match_words*>(workspace)->arrivals;
      POLYPATH_NO_UNROLL
      for (unsigned phase = 0; phase < mpi_workspace::kPhases; ++phase) {
        grid_matcher<mpi>::run(phase, warp_bits, of_mpi(workspace, capacity), capacity, batch);
        if (planted(SplitFault::counted_too_early) && phase + 1 == mpi_workspace::kPhases) break;
        detail::meet_in_grid(arrivals, phase + 1);
      }
    }
    return outcome(workspace, capacity, batch);
  }
  POLYPATH_DEVICE static match_outcome outcome_of_phases(unsigned char* workspace,
                                                         std::uint32_t capacity,
                                                         const match_batch& batch) {
    if (is_long(workspace))
      return grid_matcher<mpi>::outcome(of_mpi(workspace, capacity), capacity, batch);
    return detail::outcome_of(reinterpret_cast<const match_words*>(workspace), batch);
  }

 private:
  POLYPATH_DEVICE static bool is_long(const unsigned char* workspace) {
    return load(&reinterpret_cast<const match_words*>(workspace)->is_long) != 0;
  }
  POLYPATH_DEVICE static unsigned char* of_mpi(unsigned char* workspace, std::uint32_t capacity) {
    return workspace + partitioned_workspace::of_mpi(capacity);
  }
};
template <>
class grid_matcher<hashed> : public detail::HashedGrid<hashed> {};
template <>
class grid_matcher<hashed_unique> : public detail::HashedGrid<hashed_unique> {};

}  // namespace polypath::device
