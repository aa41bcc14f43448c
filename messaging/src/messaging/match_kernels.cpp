#include "messaging/match_kernels.hpp"

#include "base/error.hpp"
#include "messaging/kernels/matching_args.h"
#include "messaging/kernels/matching_images.hpp"
#include "polypath/device/detail/hash_table_view.hpp"
#include "polypath/device/detail/mpi_storage.hpp"
#include "polypath/device/detail/mpi_tables.hpp"
#include "polypath/device/detail/source_partition_view.hpp"

namespace polypath {

namespace {

struct Names {
  const char* queues;
  const char* many;
  const char* grid;
  const char* outcome;
  const char* together;
};

template <typename Workspace, typename Storage>
MatchKernels order_of(std::span<const unsigned char> image, const Names& names,
                      std::uint32_t threads_of_many, std::uint32_t max_capacity,
                      device::match_outcome (*on_host)(const device::match_batch& batch)) {
  return {image,
          names.queues,
          names.many,
          names.grid,
          names.outcome,
          names.together,
          sizeof(Storage),
          threads_of_many,
          Workspace::kPhases,
          max_capacity,
          &Workspace::runs_in_one_warp,
          &Workspace::bytes,
          on_host};
}

}  // namespace

const MatchKernels& order_of_matching(std::int64_t order) {
  using device::hashed_storage;
  using device::hashed_workspace;
  using device::match_sums;
  using device::mpi_storage;
  using device::mpi_workspace;
  using device::partitioned_workspace;
  using device::unique_storage;
  constexpr std::uint32_t kM = 1U << 20;
  static const MatchKernels mpi = order_of<mpi_workspace, mpi_storage<kMaxPerQueue>>(
      matching_mpi_image(),
      {"polypath_match_queues_mpi", "polypath_match_many_mpi", "polypath_match_grid_mpi",
       "polypath_match_outcome_mpi", "polypath_match_all_mpi"},
      kMatchManyThreads, kM, &match_mpi_on_host);
  static const MatchKernels partitioned = order_of<partitioned_workspace, match_sums>(
      matching_partitioned_image(),
      {"polypath_match_queues_partitioned", "polypath_match_queues_partitioned",
       "polypath_match_grid_partitioned", "polypath_match_outcome_partitioned",
       "polypath_match_all_partitioned"},
      512, partitioned_workspace::kMaxCapacity, &match_partitioned_on_host);
  static const MatchKernels hashed = order_of<hashed_workspace, hashed_storage<kMaxPerQueue>>(
      matching_hashed_image(),
      {"polypath_match_queues_hashed", "polypath_match_queues_hashed", "polypath_match_grid_hashed",
       "polypath_match_outcome_hashed", nullptr},
      kMatchTableThreads, 16 * kM, &match_hashed_on_host);
  static const MatchKernels unique = order_of<hashed_workspace, unique_storage<kMaxPerQueue>>(
      matching_hashed_image(),
      {"polypath_match_queues_hashed_unique", "polypath_match_many_hashed_unique",
       "polypath_match_grid_hashed_unique", "polypath_match_outcome_hashed_unique", nullptr},
      kMatchTableThreads, 16 * kM, &match_hashed_unique_on_host);
  switch (order) {
    case POLYPATH_ORDER_MPI: return mpi;
    case POLYPATH_ORDER_NO_ANY_SOURCE: return partitioned;
    case POLYPATH_ORDER_UNORDERED: return hashed;
    case POLYPATH_ORDER_UNORDERED_UNIQUE: return unique;
  }
  throw InvalidArgument("order is none");
}

std::span<const unsigned char> carry_image() noexcept { return matching_mpi_image(); }

}  // namespace polypath
