// Ranks whose kernels run as twins on this program's memory (simt/run.hpp): rows of calls, checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "collective_case.hpp"
#include "comm/status_record.hpp"

namespace polypath::test {

class TwinRanks {
 public:
  explicit TwinRanks(const ScratchShape& shape);

  const ScratchShape& shape() const { return shape_; }
  StatusRecord& status(std::uint32_t rank) { return ranks_[rank].status; }
  std::uint32_t& abort_word(std::uint32_t rank) { return ranks_[rank].abort_word; }

  /// Launches the calls one after another on each rank; `seed` decides everything else. Empty, or
  /// what was wrong: with the run, or with the memory of a rank afterwards.
  std::string run_row(const std::vector<CollectiveCase>& cases, std::uint64_t seed);

  /// The same, but rank `missing` makes none of the calls; what the run says.
  std::string run_without(std::uint32_t missing, const CollectiveCase& what, std::uint64_t seed);

 private:
  /// As vectors are aligned to less than a scratch must be.
  struct alignas(kScratchGranule) Line {
    std::byte bytes[kScratchGranule];
  };
  struct Rank {
    std::vector<Line> scratch;
    StatusRecord status{};
    std::uint32_t abort_word = 0;
    std::uint32_t reports = 0;
  };

  struct Calls;
  Calls prepare(const std::vector<CollectiveCase>& cases, std::uint64_t seed);

  ScratchShape shape_;
  std::vector<Rank> ranks_;
};

}  // namespace polypath::test
