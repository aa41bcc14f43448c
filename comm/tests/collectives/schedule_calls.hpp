// Calls that run by copies and sums, for tests of ranks that are threads or processes: what each
// algorithm can be asked for, by which calls went, and graphs of them.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "call_rows.hpp"

namespace polypath::test {

/// Small scratch of kernels; scratch and host memory for all algorithms.
inline constexpr CollectivesOptions kWithCopies{.max_blocks = 4, .check = false, .copies = true};

/// The number of calls that ran so; 0 where the plan had the choice.
std::uint64_t calls_by(const CollectiveCounts& counts, AlgorithmOverride choice);
/// How many went in any way.
std::uint64_t all_calls(const CollectiveCounts& counts);
/// How many of a row have something to do.
std::uint64_t calls_of(const std::vector<PlannedCall>& row);

/// A random call that `choice` can run, and whose result is the same in any order if the choice
/// does not keep that of ranks.
PlannedCall call_for(Random& random, int ranks, AlgorithmOverride choice, std::uint64_t max_bytes);

/// What a rank captured.
class CapturedRow {
 public:
  CapturedRow(const CudaDriver& driver, CUstream stream, const std::function<void()>& issue);
  ~CapturedRow();
  CapturedRow(const CapturedRow&) = delete;
  CapturedRow& operator=(const CapturedRow&) = delete;
  void launch(CUstream stream) const;

  /// The rows of two captures that are under way at once.
  static std::array<std::unique_ptr<CapturedRow>, 2> two(const CudaDriver& driver,
                                                         const std::array<CUstream, 2>& streams,
                                                         const std::function<void()>& issue);

 private:
  explicit CapturedRow(const CudaDriver& driver) : driver_(driver) {}
  void begin(CUstream stream);
  void end(CUstream stream);
  /// No capture may be under way.
  void instantiate();

  const CudaDriver& driver_;
  CUgraph graph_ = nullptr;
  CUgraphExec launchable_ = nullptr;
};

/// One rank's part of a game: two graphs of an algorithm, launched again and again in a random
/// order among calls by copies and by kernels, from starts that are skewed at random; other
/// contents in each turn. The same on all ranks but for the skews.
class GraphGame {
 public:
  /// Captures. The context of the rank's GPU is current, as for all below.
  GraphGame(Communicator& comm, AlgorithmOverride choice,
            const CollectivesOptions& options = kWithCopies);

  /// A turn, to its end. What was wrong with any element; empty: nothing.
  std::string turn();
  /// Asserts that all calls since the beginning went as they should.
  void expect_counts() const;
  [[nodiscard]] const Collectives& collectives() const noexcept { return collectives_; }

  // Parts of a turn.
  /// Makes the contents.
  void prepare();
  static constexpr std::size_t kGraphs = 2;
  void launch(std::size_t graph);
  void call_by_copies();
  void call_by_kernels();
  /// Waits for the GPU, and compares.
  std::string finish();

 private:
  void issue_row(std::size_t row, AlgorithmOverride by);

  Communicator& comm_;
  AlgorithmOverride choice_;
  Random alike_;
  Random own_;
  Stream stream_;
  Collectives collectives_;
  std::vector<std::vector<PlannedCall>> rows_;  // of two graphs, by copies, by kernels
  std::vector<CallRow> mine_;
  std::vector<std::unique_ptr<CapturedRow>> graphs_;
  std::uint64_t rows_by_copies_ = 0;  // issued so far
  std::uint64_t rows_by_kernels_ = 0;
};

}  // namespace polypath::test
