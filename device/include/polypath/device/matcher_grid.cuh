// Matching by the whole GPU: phases, each a kernel of its own or part of one whose blocks meet
// after it, with tables in memory of the GPU.
#pragma once

#include "polypath/device/detail/batch_checks.cuh"
#include "polypath/device/detail/matcher.cuh"
#include "polypath/device/detail/rank_pairing.cuh"
#include "polypath/device/detail/wildcard_scan.cuh"

namespace polypath::device {

/// For every Order:
///   kPhases, runs_in_one_warp(phase)
///   workspace_bytes(capacity)    of memory of the GPU, aligned to 16 bytes, without preparation
///   run(phase, warp_bits, workspace, capacity, batch)
///       called for phases 0 to kPhases - 1 one after another by all threads of any number of
///       blocks (whole warps, as many each time) with the same arguments, one phase's stores
///       visible to the next; those that run in one warp do nothing in others. `warp_bits`:
///       kWarpWords words of the calling warp in shared memory, after those of the warp before
///   outcome(workspace, capacity, batch)    after the last phase, to any thread
/// For mpi and partitioned, by one launch, whose blocks run at once (a cooperative launch):
///   match_together(meetings, warp_bits, workspace, capacity, batch, outcome)
///       all phases; true for one thread, which has the outcome. `meetings`: a word of the GPU's
///       memory, 0 before the first of all launches, and of one launch at a time
/// A batch of more than `capacity` messages or receives is full.
template <typename Order>
class grid_matcher;

namespace detail {

/// The words of the block, from the words of the calling warp.
POLYPATH_DEVICE std::uint32_t* words_of_block(std::uint32_t* warp_words, unsigned count) {
  return warp_words - warp_index() * count;
}

/// What all orders have alike. `Own` has run_phase() and outcome_of_phases(), called with the
/// arguments of run() and outcome() for batches that are not full.
template <typename Own, typename Workspace>
class grid_phases {
 public:
  static constexpr unsigned kPhases = Workspace::kPhases;

  POLYPATH_HOST_DEVICE static constexpr bool runs_in_one_warp(unsigned phase) {
    return Workspace::runs_in_one_warp(phase);
  }
  POLYPATH_HOST_DEVICE static std::uint64_t workspace_bytes(std::uint32_t capacity) {
    return Workspace::bytes(capacity);
  }
  POLYPATH_DEVICE static void run(unsigned phase, std::uint32_t* warp_bits,
                                  unsigned char* workspace, std::uint32_t capacity,
                                  const match_batch& batch) {
    if (!is_full(capacity, batch))
      return Own::run_phase(phase, warp_bits, workspace, capacity, batch);
    const whole_grid grid;
    if (phase == 0) match_nothing(batch, grid.rank(), grid.size());
  }
  POLYPATH_DEVICE static match_outcome outcome(unsigned char* workspace, std::uint32_t capacity,
                                               const match_batch& batch) {
    if (is_full(capacity, batch)) return refused(match_status::full, 0);
    return Own::outcome_of_phases(workspace, capacity, batch);
  }
  [[nodiscard]] POLYPATH_DEVICE static bool match_together(
      std::uint32_t* meetings, std::uint32_t* warp_bits, unsigned char* workspace,
      std::uint32_t capacity, const match_batch& batch, match_outcome& result) {
    const grid_barrier all(meetings);
    if (is_full(capacity, batch))
      match_nothing(batch, whole_grid{}.rank(), whole_grid{}.size());
    else
      Own::run_together(all, warp_bits, workspace, capacity, batch);
    if (!all.is_last() || thread_index() != 0) return false;
    result = outcome(workspace, capacity, batch);
    return true;
  }

 private:
  POLYPATH_DEVICE static bool is_full(std::uint32_t capacity, const match_batch& batch) {
    return batch.message_count > capacity || batch.receive_count > capacity;
  }
};

}  // namespace detail

template <>
class grid_matcher<mpi> : public detail::grid_phases<grid_matcher<mpi>, mpi_workspace> {
 public:
  static constexpr unsigned kWarpWords = 256;

  POLYPATH_DEVICE static void run_phase(unsigned phase, std::uint32_t* warp_bits,
                                        unsigned char* workspace, std::uint32_t capacity,
                                        const match_batch& batch) {
    const mpi_phases<in_global> phases = phases_of(workspace, capacity, batch);
    if (phase == 0) return phases.clear();
    if (phase == 1) return phases.enter_receives();
    if (phase == 2) return phases.enter_messages();
    if (phases.is_refused()) return;
    if (phase == 3) return phases.give_out_lists(detail::words_of_block(warp_bits, kWarpWords));
    if (phase == 4) phases.fill_lists();
    if (phases.is_by_groups()) {
      if (phase == 5) phases.pair_groups();
      return;
    }
    if (phase == 4) phases.note_long_groups();
    if (phase == 6) phases.template find_ranks<kWarpWords>(warp_bits);
    if (phase == 7) phases.order_lists();
    if (phase == mpi_workspace::kChoosing && detail::whole_grid{}.rank() < kWarp &&
        phases.wildcards() != 0)
      phases.choose_for_wildcards();
    if (phase == 9) phases.take_the_rest();
  }
  /// The same phases of a batch that is not full, by blocks that run at once; one that has nothing
  /// to do is left out, and its meeting.
  POLYPATH_DEVICE static void run_together(const detail::grid_barrier& all,
                                           std::uint32_t* warp_bits, unsigned char* workspace,
                                           std::uint32_t capacity, const match_batch& batch) {
    const mpi_phases<in_global> phases = phases_of(workspace, capacity, batch);
    phases.clear();
    all.meet();
    phases.enter_receives();
    all.meet();
    phases.enter_messages();
    all.meet();
    if (phases.is_refused()) return;
    phases.give_out_lists(detail::words_of_block(warp_bits, kWarpWords));
    all.meet();
    phases.fill_lists();
    const bool is_by_groups = phases.is_by_groups();
    if (!is_by_groups) phases.note_long_groups();
    all.meet();
    if (is_by_groups) return phases.pair_groups();
    phases.template find_ranks<kWarpWords>(warp_bits);
    all.meet();
    phases.order_lists();
    all.meet();
    if (phases.wildcards() != 0) {
      if (detail::whole_grid{}.rank() < kWarp) phases.choose_for_wildcards();
      all.meet();
    }
    phases.take_the_rest();
  }
  POLYPATH_DEVICE static match_outcome outcome_of_phases(unsigned char* workspace,
                                                         std::uint32_t capacity,
                                                         const match_batch& batch) {
    return mpi_phases<in_global>(mpi_workspace::cut(workspace, capacity), batch, 0, kWarp)
        .outcome();
  }

 private:
  POLYPATH_DEVICE static mpi_phases<in_global> phases_of(unsigned char* workspace,
                                                         std::uint32_t capacity,
                                                         const match_batch& batch) {
    const detail::whole_grid grid;
    auto tables = mpi_workspace::cut(workspace, capacity);
    tables.slots_log2 = detail::log2_above(2 * batch.receive_count);
    return {tables, batch, grid.rank(), grid.size()};
  }
};

}  // namespace polypath::device
