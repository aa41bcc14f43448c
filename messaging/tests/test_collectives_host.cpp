// Collectives that kernels make, by a thread, a warp, a block or the grid of each rank: rows of
// calls over hostile schedules, every byte compared; ranks that do not come; and each defect of
// collective_mutant is found.
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include "collectives_kernels.h"
#include "polypath/device/detail/half.cuh"
#include "polypath/device/detail/rank_barrier.cuh"
#include "queue_memory.hpp"
#include "simt/run.hpp"

namespace polypath::test {
namespace {

using device::collective_mutant;
using Bytes = std::vector<unsigned char>;
constexpr int kMaxRanks = device::collectives_view::kMaxRanks;

std::size_t element_bytes(CollectiveOp op) {
  switch (op) {
    case CollectiveOp::all_reduce_float:
    case CollectiveOp::all_reduce_int_max: return 4;
    case CollectiveOp::all_reduce_half: return 2;
    case CollectiveOp::barrier:
    case CollectiveOp::broadcast:
    case CollectiveOp::all_gather: break;
  }
  return 1;
}
template <typename T>
T element(const Bytes& bytes, std::size_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof value, sizeof value);
  return value;
}
template <typename T>
void put(Bytes& bytes, std::size_t index, T value) {
  std::memcpy(bytes.data() + index * sizeof value, &value, sizeof value);
}

/// The sequential result, in rank order.
Bytes reduced(CollectiveOp op, const std::vector<Bytes>& parts, std::size_t count) {
  Bytes result(count * element_bytes(op));
  for (std::size_t i = 0; i < count; ++i) {
    if (op == CollectiveOp::all_reduce_int_max) {
      auto most = element<std::int32_t>(parts[0], i);
      for (const Bytes& part : parts) most = std::max(most, element<std::int32_t>(part, i));
      put(result, i, most);
      continue;
    }
    const bool is_half = op == CollectiveOp::all_reduce_half;
    const auto value_of = [&](const Bytes& part) {
      return is_half ? device::to_float(element<device::float16>(part, i))
                     : element<float>(part, i);
    };
    float sum = value_of(parts[0]);
    for (std::size_t r = 1; r < parts.size(); ++r) sum += value_of(parts[r]);
    is_half ? put(result, i, device::to_float16(sum)) : put(result, i, sum);
  }
  return result;
}

struct RankOfRow {
  WaitContextMemory wait_ctx;
  LineBytes meeting{device::collectives_view::kMeetingBytes, 0};
  LineBytes grid{device::collectives_view::kGridBytes, 0};
  LineBytes memory{0, 0};
  std::vector<CollectiveCall> calls;
  std::deque<Bytes> data;      // what calls read and write, by rank's own addresses
  std::deque<Bytes> expected;  // of each call
  std::vector<Bytes*> actual;
  std::uint32_t aborted = 0;
};

struct RowOptions {
  int ranks = 3;
  unsigned blocks = 3;
  unsigned rounds = 8;
  std::size_t max_bytes = 3000;
  int group = -1;  ///< of all calls; else any
};

class Row {
 public:
  Row(std::uint64_t seed, const RowOptions& options)
      : random_(seed), options_(options), ranks_(static_cast<std::size_t>(options.ranks)) {
    part_ = options.max_bytes + 64;
    bytes_ = 2 * part_ * (ranks_.size() + 1);
    for (RankOfRow& rank : ranks_) rank.memory = LineBytes(bytes_, 0xEE);
    for (unsigned round = 0; round < options.rounds; ++round) add_call();
  }

  /// Ranks of which `without` does not come. Empty, or what was wrong.
  std::string run(std::uint64_t seed, int without = -1) {
    simt::RunOptions options;
    options.seed = seed;
    options.max_steps = 8'000'000;
    std::vector<std::vector<simt::Launch>> rows;
    for (std::size_t own = 0; own < ranks_.size(); ++own) {
      RankOfRow& rank = ranks_[own];
      const int device = static_cast<int>(own);
      options.memory.push_back({rank.memory.get<unsigned char>(), bytes_, device});
      CollectivesRow row{};
      row.view.rank = device;
      row.view.ranks = options_.ranks;
      for (std::size_t r = 0; r < ranks_.size(); ++r) {
        row.view.meeting[r] = ranks_[r].meeting.get<std::uint64_t>();
        row.memory.at[r] = ranks_[r].memory.get<unsigned char>();
      }
      row.view.grid = rank.grid.get<std::uint32_t>();
      row.view.wait_ctx = rank.wait_ctx.wait_ctx();
      row.aborted = &rank.aborted;
      // In two kernels, of which the second has another grid.
      const std::size_t half = rank.calls.size() / 2;
      CollectivesRow rest = row;
      row.calls = rank.calls.data();
      row.count = static_cast<std::uint32_t>(half);
      rest.calls = rank.calls.data() + half;
      rest.count = static_cast<std::uint32_t>(rank.calls.size() - half);
      if (device == without) continue;
      rows.push_back(
          {simt::launch("polypath_test_collectives", device, options_.blocks, 64, row),
           simt::launch("polypath_test_collectives", device, options_.blocks + 1, 64, rest)});
    }
    if (std::string error = simt::run(rows, options); !error.empty()) return error;
    for (std::size_t own = 0; own < ranks_.size(); ++own) {
      const RankOfRow& rank = ranks_[own];
      if (static_cast<int>(own) == without) continue;
      if (rank.wait_ctx.status.given_up != 0) return "rank " + std::to_string(own) + " gave up";
      for (std::size_t call = 0; call < rank.actual.size(); ++call)
        if (*rank.actual[call] != rank.expected[call])
          return "rank " + std::to_string(own) + " has other bytes behind call " +
                 std::to_string(call);
    }
    return "";
  }
  RankOfRow& rank(std::size_t number) { return ranks_[number]; }

 private:
  std::size_t below(std::size_t end) { return random_() % end; }

  Bytes random_elements(CollectiveOp op, std::size_t bytes) {
    Bytes all(bytes);
    for (auto& byte : all) byte = static_cast<unsigned char>(random_());
    std::uniform_real_distribution<float> any(-3.0F, 3.0F);
    if (op == CollectiveOp::all_reduce_float)
      for (std::size_t i = 0; i < bytes / 4; ++i) put(all, i, any(random_));
    if (op == CollectiveOp::all_reduce_half)
      for (std::size_t i = 0; i < bytes / 2; ++i) put(all, i, device::to_float16(any(random_)));
    return all;
  }

  void add_call() {
    const auto op = static_cast<CollectiveOp>(below(6));
    const std::size_t element = element_bytes(op);
    const std::size_t count = below(8) == 0 ? 0 : below(options_.max_bytes / element + 1);
    const std::size_t bytes = op == CollectiveOp::barrier ? 0 : count * element;
    const std::size_t root = below(ranks_.size());
    const bool is_in_place = below(2) == 0;
    // Two areas, used again and again.
    const std::size_t area = below(2) * part_ * (ranks_.size() + 1);
    const std::size_t recv = area + below(4) * 4;
    const std::size_t send = is_in_place ? recv : area + part_ * ranks_.size() + below(4) * 4;
    std::vector<Bytes> in;
    for (std::size_t r = 0; r < ranks_.size(); ++r) in.push_back(random_elements(op, bytes));
    Bytes all;
    for (const Bytes& each : in) all.insert(all.end(), each.begin(), each.end());
    const auto group = options_.group >= 0 ? options_.group : static_cast<int>(below(4));
    for (std::size_t own = 0; own < ranks_.size(); ++own) {
      RankOfRow& rank = ranks_[own];
      CollectiveCall call{};
      call.op = op;
      call.group = static_cast<CollectiveGroup>(group);
      call.root = static_cast<std::int32_t>(root);
      call.is_in_place = is_in_place ? 1 : 0;
      call.count = count;
      call.send = send;
      call.recv = recv;
      Bytes expected;
      switch (op) {
        case CollectiveOp::barrier: break;
        case CollectiveOp::broadcast:
          call.in_bytes = own == root ? bytes : 0;
          call.fill = recv;
          expected = in[root];
          break;
        case CollectiveOp::all_gather:
          call.in_bytes = bytes;
          call.fill = is_in_place ? recv + own * bytes : send;
          expected = all;
          break;
        case CollectiveOp::all_reduce_float:
        case CollectiveOp::all_reduce_half:
        case CollectiveOp::all_reduce_int_max:
          call.in_bytes = bytes;
          call.fill = send;
          expected = reduced(op, in, count);
          break;
      }
      call.in = rank.data.emplace_back(in[own]).data();
      call.look = recv;
      call.out_bytes = expected.size();
      rank.actual.push_back(&rank.data.emplace_back(expected.size(), 0xBB));
      call.out = rank.actual.back()->data();
      rank.expected.push_back(std::move(expected));
      rank.calls.push_back(call);
    }
  }

  std::mt19937_64 random_;
  RowOptions options_;
  std::deque<RankOfRow> ranks_;
  std::size_t part_ = 0;
  std::size_t bytes_ = 0;
};

class Collectives : public testing::TestWithParam<int> {};
TEST_P(Collectives, GiveAllRanksWhatTheySay) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    RowOptions options;
    options.ranks = GetParam();
    options.blocks = 1 + seed % 3;
    ASSERT_EQ(Row(seed, options).run(seed * 31), "") << seed;
  }
}
INSTANTIATE_TEST_SUITE_P(Of, Collectives, testing::Values(1, 2, 3, 4, 8),
                         [](const auto& test_info) {
                           return std::to_string(test_info.param) + "Ranks";
                         });

class CollectiveWaits : public testing::TestWithParam<int> {};
TEST_P(CollectiveWaits, AbsentRank_EndsWaitsByTimeout) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    RowOptions options;
    options.group = GetParam();
    Row row(seed, options);
    ASSERT_EQ(row.run(seed, 1), "rank 0 gave up");
    for (const std::size_t rank : {0U, 2U}) {
      EXPECT_EQ(row.rank(rank).wait_ctx.status.reason, device::wait_error::time_limit);
      EXPECT_EQ(row.rank(rank).wait_ctx.status.waited_for_rank, 1U);
      EXPECT_GT(row.rank(rank).aborted, 0U) << "threads are told";
    }
  }
}
TEST_P(CollectiveWaits, EndWithAnAbort) {
  RowOptions options;
  options.group = GetParam();
  Row row(1, options);
  for (const std::size_t rank : {0U, 2U}) row.rank(rank).wait_ctx.abort_flag = 1;
  ASSERT_EQ(row.run(1, 1), "rank 0 gave up");
  EXPECT_EQ(row.rank(0).wait_ctx.status.reason, device::wait_error::aborted);
}
INSTANTIATE_TEST_SUITE_P(Of, CollectiveWaits, testing::Values(0, 1, 2, 3));

class CollectiveMutant : public testing::TestWithParam<collective_mutant> {
 protected:
  void TearDown() override { active_mutant<collective_mutant> = collective_mutant::none; }
};
TEST_P(CollectiveMutant, MakesRunsFail) {
  active_mutant<collective_mutant> = GetParam();
  int failures = 0;
  for (std::uint64_t seed = 1; seed <= 300 && failures < 2; ++seed) {
    RowOptions options;
    options.rounds = 12;
    if (GetParam() >= collective_mutant::relaxed_arrival)
      options.group = static_cast<int>(CollectiveGroup::grid);
    failures += Row(seed, options).run(seed).empty() ? 0 : 1;
  }
  EXPECT_GE(failures, 2) << "of 300 seeds";
}
INSTANTIATE_TEST_SUITE_P(
    Of, CollectiveMutant,
    testing::Values(collective_mutant::exact_value, collective_mutant::word_loaded_plainly,
                    collective_mutant::barrier_without_release,
                    collective_mutant::barrier_of_neighbours,
                    collective_mutant::barrier_not_counted,
                    collective_mutant::group_ahead_of_its_barrier,
                    collective_mutant::own_part_first, collective_mutant::slices_overlap,
                    collective_mutant::no_first_barrier, collective_mutant::no_last_barrier,
                    collective_mutant::wrong_slot, collective_mutant::relaxed_arrival,
                    collective_mutant::arrivals_not_reset));

}  // namespace
}  // namespace polypath::test
