// Ranks whose kernels run as host builds, for rows of calls that normalise what they sum, with
// collectives by cells between them, which use the same cells.
#pragma once

#include <string>
#include <vector>

#include "comm/wait_error.hpp"
#include "norm_case.hpp"
#include "simt/run.hpp"

namespace polypath::test {

/// One call of a row.
struct MixedCase {
  bool is_norm = true;
  NormCase norm;
  CollectiveCase collective;
};

class NormKernelRanks {
 public:
  explicit NormKernelRanks(const ScratchShape& shape, unsigned threads = 64);

  [[nodiscard]] const ScratchShape& shape() const { return shape_; }
  [[nodiscard]] const wait_error& status(std::uint32_t rank) const { return ranks_[rank].status; }

  /// The next call has this number among those of cells.
  void set_calls_of_cells(std::uint64_t number);

  /// Launches the calls one after another on each rank; `seed` decides everything else. Empty, or
  /// what was wrong. `missing`: a rank that makes none of the calls.
  std::string run_row(const std::vector<MixedCase>& cases, std::uint64_t seed,
                      std::uint32_t missing = kMaxRanks);
  /// One call, of which each rank makes its own; what the run says.
  std::string run_apart(const std::vector<MixedCase>& by_rank, std::uint64_t seed);

 private:
  struct alignas(kScratchGranule) Line {
    std::byte bytes[kScratchGranule];
  };
  struct Rank {
    std::vector<Line> scratch;
    wait_error status{};
    std::uint32_t abort_flag = 0;
    std::uint32_t reports = 0;
  };
  /// The memory of a rank for a call.
  struct Memory {
    Image image;
    std::vector<Line> lines;
  };

  [[nodiscard]] simt::RunOptions options(std::uint64_t seed) const;
  void complete(CollectiveArgs& args);
  [[nodiscard]] std::vector<Memory> memory_of(const MixedCase& what, Random& random,
                                              std::vector<simt::Launch>& launches);

  ScratchShape shape_;
  unsigned threads_;
  std::vector<Rank> ranks_;
};

}  // namespace polypath::test
