#include "nccl/tuned_policy.hpp"

#include <vector>

#include "polypath/uniconn/backend/routing_table.hpp"

namespace polypath::nccl {
namespace {

namespace table = polypath::uniconn::detail;

struct Measured {
  int operation;  ///< POLYPATH_COMM_...
  Operation its;
};
/// A reduce-scatter is not measured.
constexpr Measured kMeasured[] = {{POLYPATH_COMM_ALLREDUCE, Operation::all_reduce},
                                  {POLYPATH_COMM_REDUCE, Operation::reduce},
                                  {POLYPATH_COMM_ALL_GATHER, Operation::all_gather},
                                  {POLYPATH_COMM_BROADCAST, Operation::broadcast},
                                  {POLYPATH_COMM_ALL_TO_ALL, Operation::all_to_all}};

std::vector<polypath_backend_entry> rows_of(const Engine& engine, const std::vector<int>& gpus,
                                            int operation) {
  std::vector<polypath_backend_entry> rows;
  std::size_t count = 0;
  do {
    rows.resize(count);
    if (engine.backend_entries(engine.context, gpus.data(), static_cast<int>(gpus.size()),
                               rows.data(), rows.size(), &count) != POLYPATH_SUCCESS)
      return {};
  } while (rows.size() < count);
  rows.resize(count);
  std::erase_if(rows, [&](const polypath_backend_entry& row) {
    return row.op != operation || row.us[POLYPATH_BACKEND_POLYPATH] < 0 ||
           row.us[POLYPATH_BACKEND_GPUCCL] < 0;
  });
  return rows;
}

}  // namespace

bool has_measured(const Engine& engine) noexcept {
  std::size_t count = 0;
  return engine.backend_entries(engine.context, nullptr, 0, nullptr, 0, &count) ==
             POLYPATH_SUCCESS &&
         count > 0;
}

Policy measured_policy(const Engine& engine, polypath_comm* comm, int ranks) noexcept {
  Policy policy;
  std::vector<int> gpus;
  for (int rank = 0; rank < ranks; ++rank) gpus.push_back(engine.comm_gpu(comm, rank));
  const table::LibrarySet usable =
      table::only(POLYPATH_BACKEND_POLYPATH) | table::only(POLYPATH_BACKEND_GPUCCL);
  constexpr unsigned kSizes = 48;
  for (const Measured& one : kMeasured) {
    const std::vector<polypath_backend_entry> rows = rows_of(engine, gpus, one.operation);
    const auto at = static_cast<std::size_t>(one.its);
    for (unsigned bit = 0; bit < kSizes; ++bit) {
      const polypath_backend_entry* const row = table::nearest_row(rows, std::size_t{1} << bit);
      if (row == nullptr) continue;
      policy.measured[at] |= std::uint64_t{1} << bit;
      if (table::library_of_row(*row, usable, POLYPATH_BACKEND_GPUCCL) == POLYPATH_BACKEND_POLYPATH)
        policy.faster[at] |= std::uint64_t{1} << bit;
    }
  }
  return policy;
}

}  // namespace polypath::nccl
