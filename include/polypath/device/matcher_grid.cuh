// Matching by the whole GPU: phases, each a kernel of its own or part of one behind a barrier of
// the grid, with tables in memory of the GPU.
#pragma once

#include "polypath/device/match_checks.cuh"
#include "polypath/device/matcher.cuh"
#include "polypath/device/matcher_wildcards.cuh"

namespace polypath::device {

/// For every Order:
///   kPhases, runs_in_one_warp(phase)
///   workspace_bytes(capacity)    of memory of the GPU, aligned to 16 bytes, without preparation
///   run(phase, warp_bits, workspace, capacity, batch)
///       called for phases 0 to kPhases - 1 one behind another by all threads of any number of
///       blocks (whole warps) with the same arguments, one phase's stores visible to the next;
///       those that run in one warp do nothing in others. `warp_bits`: kWarpWords words of the
///       calling warp in shared memory
///   outcome(workspace, capacity, batch)    behind the last phase, to any thread
/// A batch of more than `capacity` messages or receives is full.
template <typename Order>
class grid_matcher;

namespace detail {

/// What all orders have alike. `Own` has run_phase() and outcome_of_phases(), called with the
/// arguments of run() and outcome() for batches that are not full.
template <typename Own, typename Workspace>
class PhasesOfGrid {
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
    const WholeGrid grid;
    if (phase == 0) match_nothing(batch, grid.rank(), grid.size());
  }
  POLYPATH_DEVICE static match_outcome outcome(unsigned char* workspace, std::uint32_t capacity,
                                               const match_batch& batch) {
    if (is_full(capacity, batch)) return refused(match_status::full, 0);
    return Own::outcome_of_phases(workspace, capacity, batch);
  }

 private:
  POLYPATH_DEVICE static bool is_full(std::uint32_t capacity, const match_batch& batch) {
    return batch.message_count > capacity || batch.receive_count > capacity;
  }
};

}  // namespace detail

template <>
class grid_matcher<mpi> : public detail::PhasesOfGrid<grid_matcher<mpi>, mpi_workspace> {
 public:
  static constexpr unsigned kWarpWords = 256;

  POLYPATH_DEVICE static void run_phase(unsigned phase, std::uint32_t* warp_bits,
                                        unsigned char* workspace, std::uint32_t capacity,
                                        const match_batch& batch) {
    const detail::WholeGrid grid;
    const unsigned rank = grid.rank();
    auto of = mpi_workspace::cut(workspace, capacity);
    of.slots_log2 = detail::log2_above(2 * batch.receive_count);
    const mpi_phases<in_global> phases(of, batch, rank, grid.size());
    if (phase == 0) return phases.clear();
    if (phase == 1) return phases.enter_receives();
    if (phase == 2) return phases.enter_messages();
    if (phases.is_refused()) return;
    if (phase == 3) phases.give_out_lists();
    if (phase == 4) phases.fill_lists();
    if (phase == 5) phases.template find_ranks<kWarpWords>(warp_bits);
    if (phase == 6) phases.order_lists();
    if (phase == mpi_workspace::kChoosing && rank < kWarp && phases.wildcards() != 0)
      phases.choose_for_wildcards();
    if (phase == 8) phases.take_the_rest();
  }
  POLYPATH_DEVICE static match_outcome outcome_of_phases(unsigned char* workspace,
                                                         std::uint32_t capacity,
                                                         const match_batch& batch) {
    return mpi_phases<in_global>(mpi_workspace::cut(workspace, capacity), batch, 0, kWarp)
        .outcome();
  }
};

}  // namespace polypath::device
