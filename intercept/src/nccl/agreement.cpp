#include "nccl/agreement.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "nccl/strict_mode.hpp"
#include "polypath/polypath.h"

namespace polypath::nccl {

Record own_record() noexcept {
  Record record;
  record.version = {POLYPATH_VERSION_MAJOR, POLYPATH_VERSION_MINOR, POLYPATH_VERSION_PATCH, 0};
  // Machines may share their names.
  const int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  if (file < 0 || read(file, record.host.data(), record.host.size() - 1) < 0)
    gethostname(record.host.data(), record.host.size() - 1);
  if (file >= 0) close(file);
  record.pid = getpid();
  record.reproducible = settings().reproducible ? 1 : 0;
  return record;
}

std::string refusal_of(std::span<const Record> records) {
  const Record& first = records.front();
  for (std::size_t rank = 1; rank < records.size(); ++rank) {
    const Record& its = records[rank];
    const std::string of = "rank " + std::to_string(rank);
    if (its.layout != first.layout || its.version != first.version)
      return of + " has another version of polypath than rank 0";
    if (its.host != first.host) return of + " is on another machine than rank 0";
    for (std::size_t other = 0; other < rank; ++other)
      if (records[other].pid == its.pid && records[other].gpu == its.gpu)
        return of + " and rank " + std::to_string(other) + " are on one GPU";
  }
  return "";
}

bool is_reproducible(std::span<const Record> records) noexcept {
  return std::ranges::any_of(records, [](const Record& its) { return its.reproducible != 0; });
}

bool may_take_any(std::span<const Record> records) noexcept {
  return is_reproducible(records) || records.front().measured != 0;
}

bool settle(std::span<const Outcome> outcomes, bool reproducible, Policy& policy) noexcept {
  policy = outcomes.front().policy;
  policy.reproducible = reproducible;
  return std::ranges::all_of(outcomes, [](const Outcome& its) { return its.is_made != 0; });
}

}  // namespace polypath::nccl
