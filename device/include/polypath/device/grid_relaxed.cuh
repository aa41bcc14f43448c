// grid_matcher of the relaxed orders: by the whole GPU (matcher_grid.cuh says how it is called).
#pragma once

#include "polypath/device/detail/grid_partitioned.cuh"
#include "polypath/device/match_hashed.cuh"
#include "polypath/device/match_unique.cuh"
#include "polypath/device/matcher_grid.cuh"

namespace polypath::device {
namespace detail {

template <typename Order>
class hashed_grid : public grid_phases<hashed_grid<Order>, hashed_workspace> {
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

template <>
class grid_matcher<partitioned>
    : public detail::grid_phases<grid_matcher<partitioned>, partitioned_workspace> {
 public:
  static constexpr unsigned kWarpWords = kWordsOfPartition;
  static_assert(kWarpWords >= grid_matcher<mpi>::kWarpWords, "");
  POLYPATH_DEVICE static void run_phase(unsigned phase, std::uint32_t* warp_bits,
                                        unsigned char* workspace, std::uint32_t capacity,
                                        const match_batch& batch) {
    constexpr unsigned kOfSplit = partitioned_workspace::kOfSplit;
    if (phase < kOfSplit)
      run_split_phase(view_of(workspace, capacity, batch), phase,
                      detail::words_of_block(warp_bits, kWarpWords));
    else if (is_long(workspace))
      grid_matcher<mpi>::run(phase - kOfSplit, bits_of_mpi(warp_bits), of_mpi(workspace, capacity),
                             capacity, batch);
  }
  /// As that of grid_matcher<mpi>.
  POLYPATH_DEVICE static void run_together(const detail::grid_barrier& all,
                                           std::uint32_t* warp_bits, unsigned char* workspace,
                                           std::uint32_t capacity, const match_batch& batch) {
    const split_view view = view_of(workspace, capacity, batch);
    std::uint32_t* const words = detail::words_of_block(warp_bits, kWarpWords);
    begin_split(view);
    all.meet();
    scatter_to_partitions<partitioned>(view);
    all.meet();
    if (load(&view.words->bad) != kNothingBad) {
      const detail::whole_grid grid;
      return detail::match_nothing(batch, grid.rank(), grid.size());
    }
    if (load(&view.words->is_crowded) != 0) {
      assign_partition_offsets(view, words);
      all.meet();
      if (is_long(workspace))
        return run_as_mpi(all, bits_of_mpi(warp_bits), of_mpi(workspace, capacity), capacity,
                          batch);
      gather_partitions(view);
      all.meet();
    }
    match_partitions(view, words);
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
  POLYPATH_DEVICE static split_view view_of(unsigned char* workspace, std::uint32_t capacity,
                                            const match_batch& batch) {
    return partitioned_workspace::cut(
        workspace, capacity, batch, split_view::bits_for(batch.message_count, batch.receive_count));
  }
  /// By a call, so that what is usual has the registers for itself.
  POLYPATH_DEVICE_NOINLINE static void run_as_mpi(detail::grid_barrier all,
                                                  std::uint32_t* warp_bits,
                                                  unsigned char* workspace, std::uint32_t capacity,
                                                  match_batch batch) {
    grid_matcher<mpi>::run_together(all, warp_bits, workspace, capacity, batch);
  }
  /// A warp needs fewer words there.
  POLYPATH_DEVICE static std::uint32_t* bits_of_mpi(std::uint32_t* warp_bits) {
    return detail::words_of_block(warp_bits, kWarpWords) +
           warp_index() * grid_matcher<mpi>::kWarpWords;
  }
  POLYPATH_DEVICE static unsigned char* of_mpi(unsigned char* workspace, std::uint32_t capacity) {
    return workspace + partitioned_workspace::of_mpi(capacity);
  }
};
template <>
class grid_matcher<hashed> : public detail::hashed_grid<hashed> {};
template <>
class grid_matcher<hashed_unique> : public detail::hashed_grid<hashed_unique> {};

}  // namespace polypath::device
