// The host build of the kernel by which streams wait, over hostile schedules; and what the tests here are
// worth: each defect of wait_mutants.h is found.
#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <functional>
#include <random>

#include "comm/kernels/stream_wait_args.h"
#include "comm/kernels/wait_mutants.h"
#include "planting.hpp"
#include "polypath/device/wait.cuh"
#include "simt/platform.cuh"
#include "simt/run.hpp"

namespace polypath::test {

constexpr std::uint32_t kRanks = 4;
constexpr std::uint32_t kElements = 96;  // of a message

/// A message for every other rank, and then a word of its own; or, without data, the word alone.
struct SendArgs {
  std::uint64_t* inbox[kRanks];  ///< a message from each rank
  std::uint64_t* words[kRanks];
  std::uint32_t rank;
  std::uint64_t value;        ///< for the words
  const std::uint64_t* data;  ///< null: none
};

SIMT_KERNEL(test_send, 32, SendArgs args) {
  for (std::uint32_t to = 0; to < kRanks; ++to) {
    if (to == args.rank) continue;
    for (std::uint32_t i = simt::thread_index(); args.data != nullptr && i < kElements; i += 32)
      simt::store(args.inbox[to] + args.rank * kElements + i, simt::load(args.data + i));
    simt::warp_sync();
    if (simt::lane_index() == 0) simt::store_release(args.words[to] + args.rank, args.value);
  }
}

/// The message alone, as a copy brings it.
SIMT_KERNEL(test_send_data, 32, SendArgs args) {
  for (std::uint32_t to = 0; to < kRanks; ++to)
    for (std::uint32_t i = simt::thread_index(); to != args.rank && i < kElements; i += 32)
      simt::store(args.inbox[to] + args.rank * kElements + i, simt::load(args.data + i));
}

/// What every other rank has sent.
SIMT_KERNEL(test_take, 32, const std::uint64_t* inbox, std::uint64_t* out) {
  for (std::uint32_t i = simt::thread_index(); i < kRanks * kElements; i += 32)
    simt::store(out + i, simt::load(inbox + i));
}

/// As the host of a rank does, late: aborts after a timeout. Notes what `word` is just before.
SIMT_KERNEL(test_host, 32, wait_error* status, std::uint32_t* abort_flag, const std::uint64_t* word,
            std::uint64_t* current) {
  if (simt::thread_index() != 0) return;
  while (simt::load_volatile(&status->given_up) == 0) simt::spin_pause();
  const std::uint64_t began = simt::global_timer_ns();
  simt::spin_until([&] { return simt::load_volatile(word) != 0; },
                   [&] { return simt::global_timer_ns() - began > 1'000'000'000; });
  simt::store(current, simt::load_volatile(word));
  simt::store_volatile(abort_flag, 1U);
}

/// Waits twice for what does not come; how long each took, in ns.
SIMT_KERNEL(test_two_waits, 32, wait_context wait_ctx, std::uint64_t* took) {
  if (simt::thread_index() != 0) return;
  for (int i = 0; i < 2; ++i) {
    const std::uint64_t began = simt::global_timer_ns();
    device::wait_until(wait_ctx, [] { return false; }, [] { return device::wait_target{1, 2, 3}; });
    simt::store(took + i, simt::global_timer_ns() - began);
  }
}

namespace {

class WaitKernel : public testing::Test {
 protected:
  struct Rank {
    std::array<std::uint64_t, kRanks * kElements> inbox{};
    std::array<std::uint64_t, kRanks> words{};
    std::uint64_t epoch = 0;
    std::uint32_t abort_flag = 0;
    std::uint32_t reports = 0;
    wait_error status{};
  };

  /// Tells every other rank `value` in this rank's word there, and waits for theirs.
  StreamSignalArgs meeting(std::uint32_t rank, std::uint64_t value, bool begins_epoch) {
    Rank& state = ranks_[rank];
    StreamSignalArgs args{};
    for (std::uint32_t other = 0; other < kRanks; ++other) {
      if (other == rank) continue;
      args.signals[args.signal_count++] = {&ranks_[other].words[rank], value};
      args.awaited[args.awaited_count++] = {&state.words[other], value};
    }
    args.epoch = &state.epoch;
    args.begins_epoch = begins_epoch;
    args.base = state.words.data();
    args.bytes = sizeof state.words;
    args.wait_ctx = wait_ctx(rank);
    return args;
  }
  void add(std::uint32_t rank, const StreamSignalArgs& args) {
    rows_[rank].push_back(simt::launch("polypath_stream_signals", static_cast<int>(rank), 1,
                                       kStreamWaitThreads, args));
  }

  wait_context wait_ctx(std::uint32_t rank) {
    Rank& state = ranks_[rank];
    return {&state.abort_flag, 1'000'000'000, &state.status, &state.reports,
            wait_error::kStreamWait};
  }
  /// The half of a barrier that waits for all other ranks.
  StreamSignalArgs barrier(std::uint32_t rank, std::uint64_t value) {
    StreamSignalArgs args = meeting(rank, value, /*begins_epoch=*/false);
    args.signal_count = 0;
    args.epoch = nullptr;
    args.bytes = 0;
    return args;
  }
  StreamWaitArgs signal(std::uint32_t rank, std::uint32_t from, std::uint64_t value) {
    return {&ranks_[rank].words[from], value, 8 * from, 8 * kRanks, wait_ctx(rank)};
  }
  static simt::Launch launch(std::uint32_t rank, const StreamWaitArgs& args) {
    return simt::launch("polypath_stream_wait", static_cast<int>(rank), 1, kStreamWaitThreads,
                        args);
  }

  void add(std::uint32_t rank, const StreamWaitArgs& args) {
    rows_[rank].push_back(launch(rank, args));
  }
  void add_send(std::uint32_t rank, std::uint64_t value, const std::uint64_t* data) {
    SendArgs args{};
    for (std::uint32_t to = 0; to < kRanks; ++to) {
      args.inbox[to] = ranks_[to].inbox.data();
      args.words[to] = ranks_[to].words.data();
    }
    args.rank = rank;
    args.value = value;
    args.data = data;
    rows_[rank].push_back(simt::launch("test_send", static_cast<int>(rank), 1, 32, args));
  }

  std::string run(std::uint64_t seed) {
    simt::RunOptions options;
    options.seed = seed;
    options.max_steps = 3'000'000;
    for (std::uint32_t rank = 0; rank < kRanks; ++rank)
      options.memory.push_back({&ranks_[rank], sizeof(Rank), static_cast<int>(rank)});
    const std::string error = simt::run(rows_, options);
    for (auto& row : rows_) row.clear();
    return error;
  }

  /// Every rank sends to every other, over and over, with a wait for all before and after taking
  /// what came: barriers, or a wait for each signal. Empty, or what was wrong. The words count from
  /// `first`.
  std::string exchange(std::uint64_t seed, bool by_signals, std::uint64_t first) {
    constexpr int kRounds = 4;
    ranks_ = {};
    for (Rank& rank : ranks_) rank.words.fill(first);
    std::mt19937_64 random(seed);
    std::deque<std::array<std::uint64_t, kElements>> sent;  // by round and rank
    std::deque<std::array<std::uint64_t, kRanks * kElements>> taken;
    const auto wait = [&](std::uint32_t rank, std::uint64_t value) {
      if (!by_signals) return add(rank, barrier(rank, value));
      for (std::uint32_t from = 0; from < kRanks; ++from)
        if (from != rank) add(rank, signal(rank, from, value));
    };
    std::uint64_t value = first;
    for (int round = 0; round < kRounds; ++round, value += 2)
      for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
        std::ranges::generate(sent.emplace_back(), std::ref(random));
        taken.emplace_back().fill(0xEE);
        add_send(rank, value + 1, sent.back().data());
        wait(rank, value + 1);
        rows_[rank].push_back(simt::launch(
            "test_take", static_cast<int>(rank), 1, 32,
            static_cast<const std::uint64_t*>(ranks_[rank].inbox.data()), taken.back().data()));
        add_send(rank, value + 2, nullptr);
        wait(rank, value + 2);
      }
    if (const std::string error = run(random()); !error.empty()) return error;
    for (std::uint32_t rank = 0; rank < kRanks; ++rank)
      if (ranks_[rank].status.given_up != 0) return "rank " + std::to_string(rank) + " gave up";
    return what_was_taken(sent, taken);
  }

  /// Empty, or which rank took something else than what was sent; both by round and rank.
  static std::string what_was_taken(
      const std::deque<std::array<std::uint64_t, kElements>>& sent,
      const std::deque<std::array<std::uint64_t, kRanks * kElements>>& taken) {
    for (std::size_t i = 0; i < taken.size(); ++i)
      for (std::size_t from = 0; from < kRanks; ++from)
        if (from != i % kRanks && !std::equal(sent[i / kRanks * kRanks + from].begin(),
                                              sent[i / kRanks * kRanks + from].end(),
                                              taken[i].begin() + from * kElements))
          return "what rank " + std::to_string(i % kRanks) + " took is not what was sent";
    return {};
  }

  /// The same launches over and over, as of a graph: what every rank sends lies between two
  /// meetings.
  std::string relaunched(std::uint64_t seed) {
    constexpr std::uint64_t kLaunches = 4;
    ranks_ = {};
    std::mt19937_64 random(seed);
    std::deque<std::array<std::uint64_t, kElements>> sent;  // by launch and rank
    std::deque<std::array<std::uint64_t, kRanks * kElements>> taken;
    std::uint64_t unused = 0;
    std::array<std::uint64_t, kRanks * kElements> idle{};
    for (std::uint64_t launch = 0; launch < kLaunches; ++launch)
      for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
        std::ranges::generate(sent.emplace_back(), std::ref(random));
        taken.emplace_back().fill(0xEE);
        // One is late.
        for (std::uint32_t i = 0; i < 8 && rank == seed % kRanks; ++i)
          rows_[rank].push_back(simt::launch(
              "test_take", static_cast<int>(rank), 1, 32,
              static_cast<const std::uint64_t*>(ranks_[rank].inbox.data()), idle.data()));
        add(rank, meeting(rank, 1, /*begins_epoch=*/true));
        SendArgs args{};
        for (std::uint32_t to = 0; to < kRanks; ++to) {
          args.inbox[to] = ranks_[to].inbox.data();
          args.words[to] = &unused;
        }
        args.rank = rank;
        args.data = sent.back().data();
        rows_[rank].push_back(simt::launch("test_send_data", static_cast<int>(rank), 1, 32, args));
        add(rank, meeting(rank, 2, /*begins_epoch=*/false));
        rows_[rank].push_back(simt::launch(
            "test_take", static_cast<int>(rank), 1, 32,
            static_cast<const std::uint64_t*>(ranks_[rank].inbox.data()), taken.back().data()));
      }
    if (const std::string error = run(random()); !error.empty()) return error;
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
      if (ranks_[rank].status.given_up != 0) return "rank " + std::to_string(rank) + " gave up";
      if (ranks_[rank].epoch != kLaunches) return "launches were not counted";
    }
    return what_was_taken(sent, taken);
  }

  /// A rank waits at a barrier to which rank 2 does not come, and is aborted. Empty if it ends for
  /// that reason.
  std::string aborted(std::uint64_t seed) {
    ranks_ = {};
    ranks_[0].abort_flag = 1;
    add(0, barrier(0, 5));
    if (const std::string error = run(seed); !error.empty()) return error;
    const wait_error& status = ranks_[0].status;
    return status.given_up == 1 && status.reason == wait_error::aborted ? "" : "not aborted";
  }

  /// Rank 0 waits past its time limit for a signal, and tells rank 1 something after that. Empty
  /// if it tells that after the abort.
  std::string timed_out(std::uint64_t seed) {
    ranks_ = {};
    ranks_[0].words = {0, 0, 0, 7};
    std::uint64_t current = 0;
    add(0, signal(0, 3, 8));
    add_send(0, 5, nullptr);
    add_host(2, 0, &ranks_[1].words[0], &current);
    if (const std::string error = run(seed); !error.empty()) return error;
    if (ranks_[0].status.reason != wait_error::time_limit) return "it did not give up";
    return current == 0 && ranks_[1].words[0] == 5 ? "" : "told before the abort";
  }
  std::string timed_out_twice(std::uint64_t seed);
  /// On `rank`, the host of rank `of`.
  void add_host(std::uint32_t rank, std::uint32_t peer, const std::uint64_t* word,
                std::uint64_t* current) {
    rows_[rank].push_back(simt::launch("test_host", static_cast<int>(rank), 1, 32,
                                       &ranks_[peer].status, &ranks_[peer].abort_flag, word,
                                       current));
  }

  std::array<Rank, kRanks> ranks_{};
  std::vector<std::vector<simt::Launch>> rows_{kRanks};
};

constexpr std::uint64_t kEndOfTheCircle = ~0ULL - 3;
constexpr std::uint64_t kHalfTheCircle = (1ULL << 63) - 3;

TEST_F(WaitKernel, WaitReturnsAfterSentBytes) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed)
    for (const bool by_signals : {false, true})
      for (const std::uint64_t first : {std::uint64_t{0}, kHalfTheCircle, kEndOfTheCircle})
        ASSERT_EQ("", exchange(seed, by_signals, first)) << "seed " << seed;
}

TEST_F(WaitKernel, LaunchedAgainItWaitsForTheEpoch) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) ASSERT_EQ("", relaunched(seed));
}

TEST_F(WaitKernel, WordPastItsValue_EndsTheWait) {
  ranks_[1].words[0] = 9;
  add(1, signal(1, 0, 7));
  add(1, signal(1, 0, 9));
  EXPECT_EQ("", run(1));
  EXPECT_EQ(0U, ranks_[1].status.given_up);
}

TEST_F(WaitKernel, AbortEndsTheWait) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) EXPECT_EQ("", aborted(seed));
}

TEST_F(WaitKernel, Timeout_ReportsExpectedAndSeenValues) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    ranks_ = {};
    ranks_[0].words = {0, 5, 4, 6};
    add(0, barrier(0, 5));
    ranks_[1].words = {7, 0, 0, 0};
    add(1, signal(1, 0, 8));
    std::uint64_t ignored = 0;
    for (const std::uint32_t rank : {0U, 1U}) add_host(2 + rank, rank, &ignored, &ignored);
    ASSERT_EQ("", run(seed));
    const wait_error& at_barrier = ranks_[0].status;
    EXPECT_EQ(1U, at_barrier.given_up);
    EXPECT_EQ(wait_error::kStreamWait, at_barrier.kernel);
    EXPECT_EQ(wait_error::time_limit, at_barrier.reason);
    EXPECT_EQ(2U, at_barrier.waited_for_rank);
    EXPECT_EQ(5U, at_barrier.expected);
    EXPECT_EQ(4U, at_barrier.seen);
    EXPECT_EQ(0U, at_barrier.bytes);
    const wait_error& for_signal = ranks_[1].status;
    EXPECT_EQ(1U, for_signal.given_up);
    EXPECT_EQ(wait_error::time_limit, for_signal.reason);
    EXPECT_EQ(wait_error::kNobody, for_signal.waited_for_rank);
    EXPECT_EQ(8U, for_signal.expected);
    EXPECT_EQ(7U, for_signal.seen);
    EXPECT_EQ(0U, for_signal.offset);
    EXPECT_EQ(32U, for_signal.bytes);
  }
}

/// A barrier that counts on the GPU: the record has its number.
TEST_F(WaitKernel, TimeLimitOfBarrier_ReportsItsNumber) {
  constexpr auto at = [](std::uint64_t number) { return number << kEpochShift; };
  ranks_[0].epoch = 4;
  ranks_[0].words = {0, at(5), at(4), at(6)};
  StreamSignalArgs args = meeting(0, 0, /*begins_epoch=*/true);
  args.bytes = 0;
  add(0, args);
  std::uint64_t ignored = 0;
  add_host(1, 0, &ignored, &ignored);
  ASSERT_EQ("", run(1));
  EXPECT_EQ(2U, ranks_[0].status.waited_for_rank);
  EXPECT_EQ(5U, ranks_[0].status.expected);
  EXPECT_EQ(4U, ranks_[0].status.seen);
  EXPECT_EQ(at(5), ranks_[1].words[0]);
}

TEST_F(WaitKernel, TimedOutWait_HoldsStreamUntilAbort) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) EXPECT_EQ("", timed_out(seed));
}

/// A wait of a kernel that waits again, for what does not come either: the first takes its time,
/// the second none. Empty if it is so.
std::string WaitKernel::timed_out_twice(std::uint64_t seed) {
  ranks_ = {};
  std::uint64_t ignored = 0;
  std::array<std::uint64_t, 2> took{};
  const wait_context wait_ctx{&ranks_[0].abort_flag, 1'000'000'000, &ranks_[0].status,
                              &ranks_[0].reports, 3};
  rows_[0].push_back(simt::launch("test_two_waits", 0, 1, 32, wait_ctx, took.data()));
  add_host(1, 0, &ignored, &ignored);
  if (const std::string error = run(seed); !error.empty()) return error;
  if (took[0] < 1'000'000'000) return "the first wait did not take its time";
  return took[1] < 1'000'000'000 ? "" : "the second wait took its time, too";
}

TEST_F(WaitKernel, OnlyFirstTimedOutWaitTakesItsTime) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) EXPECT_EQ("", timed_out_twice(seed));
}

struct MutantCase {
  device::wait_mutant of_waits;
  StreamWaitFault of_streams;
  const char* name;
};

class WaitMutants : public WaitKernel, public testing::WithParamInterface<MutantCase> {};

TEST_P(WaitMutants, MakesRunsFail) {
  const Planting of_waits(GetParam().of_waits);
  const Planting of_streams(GetParam().of_streams);
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    if (!aborted(seed).empty() || !timed_out(seed).empty() || !timed_out_twice(seed).empty() ||
        !relaunched(seed).empty())
      return;
    for (const bool by_signals : {false, true})
      for (const std::uint64_t first : {std::uint64_t{0}, kHalfTheCircle, kEndOfTheCircle})
        if (!exchange(seed, by_signals, first).empty()) return;
  }
  FAIL() << GetParam().name << " is not found";
}

constexpr auto kNoFault = StreamWaitFault::none;
constexpr auto kWaitsWell = device::wait_mutant::none;

INSTANTIATE_TEST_SUITE_P(
    All, WaitMutants,
    testing::Values(
        MutantCase{device::wait_mutant::no_look_at_the_abort_word, kNoFault,
                   "NoLookAtTheAbortWord"},
        MutantCase{device::wait_mutant::no_look_at_the_reports, kNoFault, "NoLookAtTheReports"},
        MutantCase{device::wait_mutant::goes_on_unreported, kNoFault, "GoesOnUnreported"},
        MutantCase{kWaitsWell, StreamWaitFault::words_loaded_plainly, "WordsLoadedPlainly"},
        MutantCase{kWaitsWell, StreamWaitFault::first_word_alone, "FirstWordAlone"},
        MutantCase{kWaitsWell, StreamWaitFault::exact_value, "ExactValue"},
        MutantCase{kWaitsWell, StreamWaitFault::no_circle, "NoCircle"},
        MutantCase{kWaitsWell, StreamWaitFault::epoch_not_counted, "EpochNotCounted"}),
    [](const auto& param_info) { return std::string(param_info.param.name); });

}  // namespace
}  // namespace polypath::test
