// The kernel of examples/uniconn/cg.cuh on the host, over hostile schedules: the bits of one loop.
// And what that comparison is worth: each defect of cg_faults.hpp is found.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <string>
#include <vector>

#include "../../examples/uniconn/cg_faults.hpp"
#include "../../examples/uniconn/cg_kernel.h"
#include "cg_alone.hpp"
#include "polypath/uniconn/device/polypath_view.hpp"
#include "simt/platform.cuh"
#include "simt/run.hpp"

namespace uniconn_example {

namespace {

namespace simt = polypath::simt;
using polypath::device::wait_error;
using polypath::uniconn::detail::DeviceWords;
using polypath::uniconn::detail::PolypathView;

constexpr std::size_t kIterations = 2;

/// One rank in PureDevice, and its memory.
class Rank {
 public:
  Rank(const Brick& brick, std::uint64_t first, std::uint64_t count, double squared)
      : rows_(rows_of(brick, first, count)),
        residual_(right_side(first, count)),
        solution_(count, 0),
        product_(count, std::nan("")),
        parts_(count / cg::kBlockRows + 1, std::nan("")),
        counts_(parts_.size() + 1, 0) {
    vector = right_side(0, brick.rows());
    sums.assign(2 * kIterations + 1, 0);
    sums[0] = squared;
    launch_.waits = 1;
    launch_.rows = count;
    launch_.offsets = rows_.offsets.data();
    launch_.columns = rows_.columns.data();
    launch_.values = rows_.values.data();
    launch_.vector = vector.data();
    launch_.own = vector.data() + first;
    launch_.product = product_.data();
    launch_.solution = solution_.data();
    launch_.residual = residual_.data();
    launch_.norm = brick.norm();
    launch_.parts = parts_.data();
    launch_.multiplied = counts_.data() + 1;
    launch_.ended = counts_.data();
    launch_.comm = &view;
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  /// All iterations, as on one stream.
  [[nodiscard]] std::vector<simt::Launch> launches(int device, unsigned blocks) {
    std::vector<simt::Launch> all;
    for (std::size_t i = 0; i < kIterations; ++i)
      for (const CgStep step : {CgStep::multiply, CgStep::update, CgStep::turn}) {
        launch_.step = step;
        launch_.squared = sums.data() + i;
        launch_.next_squared = sums.data() + i + 1;
        launch_.along = sums.data() + kIterations + 1 + i;
        all.push_back(simt::launch("uniconn_cg", device, blocks, cg::kThreads, launch_));
        all.back().shared_bytes = kCgShared;
      }
    return all;
  }

  PolypathView view{};
  DeviceWords words{};
  wait_error status{};
  std::uint32_t abort_flag = 0;
  std::uint32_t reports = 0;
  std::vector<double> vector;
  std::vector<double> sums;  ///< squares, and then products with the direction

 private:
  Rows rows_;
  std::vector<double> residual_;
  std::vector<double> solution_;
  std::vector<double> product_;
  std::vector<double> parts_;
  std::vector<std::uint32_t> counts_;
  CgLaunch launch_{};
};

/// A piece of memory that all ranks have.
template <typename Memory>
void add_piece(std::deque<Rank>& ranks, const Memory& memory_of) {
  for (Rank& own : ranks) {
    PolypathView& view = own.view;
    const std::uint64_t piece = view.count++;
    std::vector<double>& own_memory = memory_of(own);
    const auto begin = reinterpret_cast<std::uint64_t>(own_memory.data());
    view.pieces.begin[piece] = begin;
    view.pieces.bytes[piece] = own_memory.size() * sizeof(double);
    for (std::size_t r = 0; r < ranks.size(); ++r)
      view.pieces.shift[r][piece] =
          reinterpret_cast<std::uint64_t>(memory_of(ranks[r]).data()) - begin;
  }
}

/// Three ranks with a block of rows each, the last not whole, and three thread blocks each. Empty,
/// or what was wrong.
std::string run_cg(std::uint64_t seed) {
  static const Brick brick{"test", 9, 15};
  static const std::vector<double> expected = cg_squares_alone(brick, kIterations);
  std::deque<Rank> ranks;
  for (std::uint64_t first = 0; first < brick.rows(); first += cg::kBlockRows)
    ranks.emplace_back(brick, first, std::min<std::uint64_t>(brick.rows() - first, cg::kBlockRows),
                       expected[0]);
  add_piece(ranks, [](Rank& rank) -> auto& { return rank.vector; });
  add_piece(ranks, [](Rank& rank) -> auto& { return rank.sums; });
  simt::RunOptions options;
  options.seed = seed;
  std::vector<std::vector<simt::Launch>> streams;
  for (std::size_t own = 0; own < ranks.size(); ++own) {
    Rank& rank = ranks[own];
    const auto device = static_cast<int>(own);
    rank.view.wait_ctx = {&rank.abort_flag, 1'000'000'000, &rank.status, &rank.reports,
                          wait_error::kProgram};
    rank.view.rank = device;
    rank.view.size = static_cast<std::int32_t>(ranks.size());
    for (std::size_t r = 0; r < ranks.size(); ++r) rank.view.words[r] = &ranks[r].words;
    options.memory.push_back({&rank, sizeof rank, device});
    for (const auto* const memory : {&rank.vector, &rank.sums})
      options.memory.push_back({memory->data(), memory->size() * sizeof(double), device});
    streams.push_back(rank.launches(device, 3));
  }
  if (const std::string error = simt::run(streams, options); !error.empty()) return error;
  for (const Rank& rank : ranks) {
    if (rank.status.given_up != 0) return "a rank gave up";
    for (std::size_t i = 0; i <= kIterations; ++i)
      if (rank.sums[i] != expected[i]) return "another residual " + std::to_string(i);
    if (rank.vector != ranks.front().vector) return "ranks have different directions";
  }
  return {};
}

TEST(CgHost, GivesTheBitsOfOneLoop) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) ASSERT_EQ("", run_cg(seed)) << "seed " << seed;
}

struct MutantCase {
  CgFault fault;
  const char* name;
};
void PrintTo(const MutantCase& has_mutant, std::ostream* to) { *to << has_mutant.name; }

class CgMutant : public testing::TestWithParam<MutantCase> {
 protected:
  void TearDown() override { polypath::active_mutant<CgFault> = CgFault::none; }
};
TEST_P(CgMutant, MakesRunsFail) {
  polypath::active_mutant<CgFault> = GetParam().fault;
  // Most are found by the first; where memory lies has a part in it, too.
  constexpr std::uint64_t kSeeds = 300;
  std::uint64_t seed = 1;
  while (seed <= kSeeds && run_cg(seed).empty()) ++seed;
  EXPECT_LE(seed, kSeeds);
}

#define MUTANT(name) \
  MutantCase { CgFault::name, #name }
INSTANTIATE_TEST_SUITE_P(Of, CgMutant,
                         testing::Values(MUTANT(ends_without_order), MUTANT(first_for_last),
                                         MUTANT(count_not_reset), MUTANT(other_halves),
                                         MUTANT(second_round_twice), MUTANT(sent_before_stored),
                                         MUTANT(sent_to_one), MUTANT(no_last_barrier),
                                         MUTANT(own_sum)),
                         [](const auto& test_info) { return std::string(test_info.param.name); });

}  // namespace
}  // namespace uniconn_example
