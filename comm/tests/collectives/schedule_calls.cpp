#include "schedule_calls.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>
#include <thread>

#include "driver/check.hpp"

namespace polypath::test {
namespace {

/// Whether it runs all operations.
bool runs_all(AlgorithmOverride choice) {
  return choice == AlgorithmOverride::pairwise || choice == AlgorithmOverride::relayed ||
         choice == AlgorithmOverride::host_trees;
}
bool runs(AlgorithmOverride choice, CollectiveOp op) {
  const bool by_owners = op == CollectiveOp::reduce_scatter || op == CollectiveOp::all_gather;
  return runs_all(choice) || op == CollectiveOp::allreduce ||
         (by_owners && choice == AlgorithmOverride::hierarchical);
}
/// Less is in no two parts.
constexpr std::uint64_t kMinMixed = 16 << 10;

// Rows of a game: of its graphs, and after those
constexpr std::size_t kByCopies = GraphGame::kGraphs;
constexpr std::size_t kByKernels = kByCopies + 1;

}  // namespace

std::uint64_t calls_by(const CollectiveCounts& counts, AlgorithmOverride choice) {
  switch (choice) {
    case AlgorithmOverride::planned:
    case AlgorithmOverride::tried: break;
    case AlgorithmOverride::kernels:
      return counts.cells + counts.lines + counts.channels - counts.relayed;
    case AlgorithmOverride::uneven: return counts.cells + counts.channels;
    case AlgorithmOverride::lines: return counts.lines;
    case AlgorithmOverride::pairwise: return counts.pairwise;
    case AlgorithmOverride::relayed: return counts.relayed;
    case AlgorithmOverride::alone: break;
    case AlgorithmOverride::hierarchical:
    case AlgorithmOverride::published: return counts.hierarchical;
    case AlgorithmOverride::ring: return counts.ring;
    case AlgorithmOverride::host: return counts.mixed;
    case AlgorithmOverride::host_trees: return counts.host_trees;
  }
  return 0;
}

std::uint64_t all_calls(const CollectiveCounts& counts) {
  return counts.cells + counts.lines + counts.channels + counts.copies + counts.pairwise +
         counts.hierarchical + counts.ring + counts.host_trees + counts.mixed;
}

std::uint64_t calls_of(const std::vector<PlannedCall>& row) {
  return static_cast<std::uint64_t>(
      std::ranges::count_if(row, [](const PlannedCall& call) { return call.what.count > 0; }));
}

PlannedCall call_for(Random& random, int ranks, AlgorithmOverride choice, std::uint64_t max_bytes) {
  const ScratchShape any_shape{static_cast<std::uint32_t>(ranks), 8, 4, 65536, 1 << 20};
  PlannedCall call;
  do {
    call.what = random_case(random, any_shape, max_bytes, 1);
    if (!runs(choice, call.what.op)) {
      call.what.op = CollectiveOp::allreduce;
      if (call.what.placement == Placement::own_part) call.what.placement = Placement::in_place;
    }
  } while (
      (choice == AlgorithmOverride::host && call.what.in_bytes() < kMinMixed) ||
      (call.what.op == CollectiveOp::all_to_all && call.what.placement != Placement::apart) ||
      (call.what.op == CollectiveOp::reduce_scatter && call.what.placement == Placement::in_place));
  if (choice == AlgorithmOverride::ring && call.what.type >= DataType::float16)
    call.what.reduction = random() % 2 == 0 ? Operator::min : Operator::max;
  call.images = images_of(random, call.what);
  return call;
}

CapturedRow::CapturedRow(const CudaDriver& driver, CUstream stream,
                         const std::function<void()>& issue)
    : driver_(driver) {
  begin(stream);
  issue();
  end(stream);
  instantiate();
}

std::array<std::unique_ptr<CapturedRow>, 2> CapturedRow::two(const CudaDriver& driver,
                                                             const std::array<CUstream, 2>& streams,
                                                             const std::function<void()>& issue) {
  std::array<std::unique_ptr<CapturedRow>, 2> rows;
  for (std::unique_ptr<CapturedRow>& row : rows) row.reset(new CapturedRow(driver));
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i]->begin(streams[i]);
  issue();
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i]->end(streams[i]);
  for (const std::unique_ptr<CapturedRow>& row : rows) row->instantiate();
  return rows;
}

void CapturedRow::begin(CUstream stream) {
  POLYPATH_CHECK(driver_, stream_begin_capture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
}
void CapturedRow::end(CUstream stream) {
  POLYPATH_CHECK(driver_, stream_end_capture(stream, &graph_));
}
void CapturedRow::instantiate() {
  POLYPATH_CHECK(driver_, graph_instantiate(&launchable_, graph_, 0));
}

CapturedRow::~CapturedRow() {
  if (launchable_ != nullptr) POLYPATH_WARN(driver_, graph_exec_destroy(launchable_));
  if (graph_ != nullptr) POLYPATH_WARN(driver_, graph_destroy(graph_));
}

void CapturedRow::launch(CUstream stream) const {
  POLYPATH_CHECK(driver_, graph_launch(launchable_, stream));
}

namespace {

PlannedCall gathering_call(Random& random, int ranks) {
  PlannedCall call;
  call.what.op = CollectiveOp::all_gather;
  call.what.ranks = static_cast<std::uint32_t>(ranks);
  call.what.count = 3000 + random() % 3000;
  call.images = images_of(random, call.what);
  return call;
}

}  // namespace

GraphGame::GraphGame(Communicator& comm, AlgorithmOverride choice,
                     const CollectivesOptions& options)
    : comm_(comm),
      choice_(choice),
      alike_(20261125 + static_cast<std::uint64_t>(choice)),
      own_(static_cast<std::uint64_t>(comm.rank())),
      stream_(comm.driver(), comm.context()),
      collectives_(comm, options),
      rows_(kByKernels + 1) {
  for (auto& row : rows_)
    for (int i = 0; i < 2; ++i)
      row.push_back(
          call_for(alike_, comm.size(), choice, &row == &rows_[0] && i == 0 ? 1 << 20 : 60000));
  // At both ends calls in which a rank waits for others to send, and not for them to take: where
  // two rows meet, one rank may be ahead of another by most of a call.
  if (runs_all(choice))
    for (auto& row : rows_) {
      row.insert(row.begin(), gathering_call(alike_, comm.size()));
      row.push_back(gathering_call(alike_, comm.size()));
    }
  for (const auto& row : rows_) mine_.emplace_back(comm.driver(), row, comm.rank());
  for (std::size_t row = 0; row < kGraphs; ++row)
    graphs_.push_back(std::make_unique<CapturedRow>(comm.driver(), stream_.get(),
                                                    [&] { issue_row(row, choice); }));
}

void GraphGame::issue_row(std::size_t row, AlgorithmOverride by) {
  for (std::size_t i = 0; i < rows_[row].size(); ++i)
    collectives_.run(mine_[row].call(rows_[row], i), stream_.get(), by);
}

void GraphGame::prepare() {
  for (std::size_t row = 0; row < rows_.size(); ++row) {
    for (PlannedCall& call : rows_[row]) call.images = images_of(alike_, call.what);
    mine_[row].reset(rows_[row]);
  }
}

void GraphGame::launch(std::size_t graph) { graphs_[graph]->launch(stream_.get()); }

void GraphGame::call_by_copies() {
  issue_row(kByCopies, choice_);
  ++rows_by_copies_;
}

void GraphGame::call_by_kernels() {
  issue_row(kByKernels, AlgorithmOverride::kernels);
  ++rows_by_kernels_;
}

std::string GraphGame::finish() {
  POLYPATH_CHECK(comm_.driver(), stream_synchronize(stream_.get()));
  comm_.check();
  for (std::size_t row = 0; row < rows_.size(); ++row)
    if (std::string wrong = mine_[row].difference_of(rows_[row]); !wrong.empty()) return wrong;
  return {};
}

std::string GraphGame::turn() {
  prepare();
  std::array<std::size_t, kByKernels + 1> order{};
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::shuffle(order, alike_);
  for (const std::size_t row : order) {
    std::this_thread::sleep_for(std::chrono::microseconds(own_() % 2000));
    if (row < kGraphs)
      launch(row);
    else if (row == kByCopies)
      call_by_copies();
    else
      call_by_kernels();
  }
  return finish();
}

void GraphGame::expect_counts() const {
  const CollectiveCounts& counts = collectives_.counts();
  const std::uint64_t captured = calls_of(rows_[0]) + calls_of(rows_[1]);
  const std::uint64_t by_copies = rows_by_copies_ * calls_of(rows_[kByCopies]);
  const std::uint64_t by_kernels = rows_by_kernels_ * calls_of(rows_[kByKernels]);
  // Next to a kernel there are no graphs.
  const bool is_same_communicator = choice_ == AlgorithmOverride::host;
  EXPECT_GT(captured, 0u);
  EXPECT_EQ(calls_by(counts, choice_), by_copies + (is_same_communicator ? 0 : captured));
  EXPECT_EQ(calls_by(counts, AlgorithmOverride::kernels),
            by_kernels + (is_same_communicator ? captured : 0));
  EXPECT_EQ(all_calls(counts), captured + by_copies + by_kernels);
}

}  // namespace polypath::test
