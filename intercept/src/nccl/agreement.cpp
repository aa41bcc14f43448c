#include "nccl/agreement.hpp"

#include <unistd.h>

#include <algorithm>
#include <vector>

#include "gate/process.hpp"
#include "polypath/uniconn/backend/routing_table.hpp"

namespace polypath::nccl {
namespace {

namespace table = polypath::uniconn::detail;

struct Measured {
  int operation;  ///< POLYPATH_COMM_...
  Operation nccl_operation;
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

Record own_record() noexcept {
  Record record;
  record.version = {POLYPATH_VERSION_MAJOR, POLYPATH_VERSION_MINOR, POLYPATH_VERSION_PATCH, 0};
  gate::name_machine(record.host.data(), record.host.size());
  record.pid = getpid();
  record.reproducible = settings().reproducible ? 1 : 0;
  return record;
}

std::string refusal_of(std::span<const Record> records) {
  const Record& first = records.front();
  for (std::size_t rank = 1; rank < records.size(); ++rank) {
    const Record& record = records[rank];
    const std::string prefix = "rank " + std::to_string(rank);
    if (record.layout != first.layout || record.version != first.version)
      return prefix + " has another version of polypath than rank 0";
    if (record.host != first.host) return prefix + " is on another machine than rank 0";
    for (std::size_t other = 0; other < rank; ++other)
      if (records[other].pid == record.pid && records[other].gpu == record.gpu)
        return prefix + " and rank " + std::to_string(other) + " are on one GPU";
  }
  return "";
}

bool is_reproducible(std::span<const Record> records) noexcept {
  return std::ranges::any_of(records,
                             [](const Record& record) { return record.reproducible != 0; });
}

bool may_take_any(std::span<const Record> records) noexcept {
  return is_reproducible(records) || records.front().measured != 0;
}

bool settle(std::span<const Outcome> outcomes, bool reproducible, Policy& policy) noexcept {
  policy = outcomes.front().policy;
  policy.reproducible = reproducible;
  return std::ranges::all_of(outcomes, [](const Outcome& outcome) { return outcome.is_made != 0; });
}

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
  for (const Measured& entry : kMeasured) {
    const std::vector<polypath_backend_entry> rows = rows_of(engine, gpus, entry.operation);
    const auto at = static_cast<std::size_t>(entry.nccl_operation);
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
