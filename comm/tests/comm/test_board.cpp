// The board by itself: no GPU, no communicator.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <fstream>
#include <functional>
#include <future>
#include <numeric>
#include <random>
#include <thread>

#include "base/error.hpp"
#include "comm/call_levels.hpp"
#include "comm/control_segment.hpp"
#include "comm/late_release.hpp"
#include "group.hpp"

namespace polypath::test {
namespace {

using testing::HasSubstr;

constexpr std::chrono::milliseconds kLimit = std::chrono::minutes(5);

template <typename Body>
std::string thrown_by(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing thrown";
}

/// A process that waits until it is told to end.
class Sleeper {
 public:
  Sleeper() {
    EXPECT_EQ(0, ::pipe(pipe_));
    pid_ = ::fork();
    if (pid_ == 0) {
      char byte = 0;
      ::close(pipe_[1]);
      ::_exit(::read(pipe_[0], &byte, 1) == 0 ? 0 : 1);
    }
  }
  ~Sleeper() { end(); }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;
  void end() {
    if (pid_ == 0) return;
    ::close(pipe_[0]);
    ::close(pipe_[1]);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  [[nodiscard]] ProcessId id() const {
    std::ifstream stat("/proc/" + std::to_string(pid_) + "/stat");
    std::string field;
    for (int i = 0; i < 22; ++i) stat >> field;  // this program's name has no space
    return {pid_, std::stoull(field)};
  }

 private:
  pid_t pid_ = 0;
  int pipe_[2] = {};
};

/// All ranks pass a round together, some read it late: what the next rounds write must not reach
/// them.
TEST(ControlSegment, SlowReadersReadTheirRound) {
  constexpr int kRanks = 3;
  const auto board = ControlSegment::make(kRanks);
  on_threads(kRanks, [&](int rank) {
    std::vector<std::uint32_t> local(2500);  // of several pieces
    std::vector<std::uint32_t> all(kRanks * local.size());
    for (std::uint32_t round = 0; round < 300; ++round) {
      std::iota(local.begin(), local.end(),
                round * 100'000 + static_cast<std::uint32_t>(rank) * 10'000);
      board->gather(rank, {}, std::as_bytes(std::span(local)),
                    std::as_writable_bytes(std::span(all)), kLimit);
      for (std::size_t other = 0; other < kRanks; ++other)
        for (std::size_t i = 0; i < local.size(); ++i)
          ASSERT_EQ(round * 100'000 + other * 10'000 + i, all[other * local.size() + i])
              << "round " << round << ", rank " << rank;
    }
  });
}

/// The rank that is through first may abort: the others have that round all the same.
TEST(ControlSegment, CompleteRound_SurvivesAbort) {
  constexpr int kRanks = 4;
  for (int turn = 0; turn < 1000; ++turn) {
    const auto board = ControlSegment::make(kRanks);
    std::barrier start(kRanks);
    on_threads(kRanks, [&](int rank) {
      std::array<int, kRanks> all{};
      start.arrive_and_wait();
      board->gather(rank, {}, std::as_bytes(std::span(&rank, 1)),
                    std::as_writable_bytes(std::span(all)), kLimit);
      board->abort("through");
      EXPECT_THAT(all, testing::ElementsAre(0, 1, 2, 3));
    });
  }
}

TEST(ControlSegment, OnlyTheOneThatIsMeantIsOpened) {
  const auto segment = ControlSegment::make(2);
  const ProcessId self = this_process();
  EXPECT_EQ(segment, ControlSegment::open(self, segment->file(), segment->id(), 2));
  ControlSegmentId other = segment->id();
  ++other.low;
  // The number of its file now stands for another board: of a job that is gone, for example.
  EXPECT_THAT(thrown_by([&] { ControlSegment::open(self, segment->file(), other, 2); }),
              HasSubstr("not the one that rank 0 made"));
  EXPECT_THAT(thrown_by([&] { ControlSegment::open(self, segment->file(), other, 3); }),
              HasSubstr("another size"));
  EXPECT_THAT(thrown_by([&] { ControlSegment::open(self, 9999, other, 2); }),
              HasSubstr("cannot be opened"));
  const int plain = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  EXPECT_THAT(thrown_by([&] { ControlSegment::open(self, plain, other, 2); }),
              HasSubstr("another size"));
  ::close(plain);
  Sleeper gone;
  const ProcessId process{gone.pid(), 0};
  gone.end();
  EXPECT_THAT(thrown_by([&] { ControlSegment::open(process, 3, other, 2); }),
              HasSubstr("cannot be opened"));
}

TEST(ControlSegment, FirstReasonIsKept) {
  const auto board = ControlSegment::make(4);
  EXPECT_EQ("", board->reason());
  EXPECT_NO_THROW(board->require_usable());
  std::barrier together(8);
  on_threads(8, [&](int thread) {
    together.arrive_and_wait();
    board->abort("reason " + std::to_string(thread));
    EXPECT_TRUE(board->aborted());
  });
  const std::string reason = board->reason();
  EXPECT_THAT(reason, testing::MatchesRegex("reason [0-7]"));
  board->abort(std::string(5000, 'x'));
  EXPECT_EQ(reason, board->reason());
  const auto another = ControlSegment::make(1);
  another->abort(std::string(5000, 'x'));
  EXPECT_EQ(std::string(1000, 'x'), another->reason());
}

/// The last to leave frees its own memory; that of others, which have gone on, is for the background.
TEST(ControlSegment, LastToLeave_ReleasesOwnMemory) {
  const auto board = ControlSegment::make(3);
  std::vector<int> released;
  std::vector<std::function<void()>> rest;
  for (const int rank : {1, 2, 0}) {
    EXPECT_TRUE(released.empty());
    EXPECT_TRUE(rest.empty());
    EXPECT_FALSE(board->has_left(rank));
    rest = board->leave(
        rank, 3, [&released, rank] { released.push_back(rank); }, kLimit, [] { return false; });
    EXPECT_TRUE(board->has_left(rank));
  }
  EXPECT_EQ(std::vector{0}, released);
  for (const auto& release : rest) release();
  EXPECT_EQ((std::vector{0, 1, 2}), released);
}

/// A creation that failed must not wait for kernels.
TEST(ControlSegment, LeaveWithoutWaiting_ReleasesNothing) {
  const auto board = ControlSegment::make(2);
  std::vector<int> released;
  const auto leave = [&](int rank) {
    return board->leave(
        rank, 2, [&released, rank] { released.push_back(rank); }, std::chrono::milliseconds(0),
        [] { return false; });
  };
  EXPECT_TRUE(leave(0).empty());
  const auto rest = leave(1);
  EXPECT_TRUE(released.empty());
  ASSERT_EQ(2U, rest.size());
  for (const auto& release : rest) release();
  EXPECT_EQ((std::vector{0, 1}), released);
}

/// What another process's rank may still reach into: after an abort it is hardly waited for.
class BoardOfTwoProcesses : public testing::Test {
 protected:
  /// Rank 0 leaves; what it has not freed.
  std::vector<std::function<void()>> leave() {
    return board->leave(
        0, 1, [this] { released.set_value(); }, std::chrono::milliseconds(1), [] { return false; });
  }
  [[nodiscard]] bool is_released(std::chrono::milliseconds limit = {}) const {
    return has_come.wait_for(limit) == std::future_status::ready;
  }
  /// `ends`: the process of rank 1.
  void release_in_background(std::vector<std::function<void()>> rest, const ProcessId& other) {
    release_late(board, {0, {{this_process(), 0, true}, {other, 1, false}}}, std::move(rest),
                 [] { return false; });
  }

  std::shared_ptr<ControlSegment> board = ControlSegment::make(2);
  std::promise<void> released;
  std::future<void> has_come = released.get_future();
};

TEST_F(BoardOfTwoProcesses, MemoryOfWhoLeaves_IsKeptForOthers) {
  board->abort("the test wants it");
  auto rest = leave();
  EXPECT_FALSE(is_released());
  ASSERT_EQ(1U, rest.size());
  release_in_background(std::move(rest), this_process());
  EXPECT_FALSE(is_released());
  board->depart(1, Departure::left);
  EXPECT_TRUE(is_released(kLimit));
}

TEST_F(BoardOfTwoProcesses, EndOfAProcess_FreesWhatItHeld) {
  Sleeper other;
  auto rest = leave();
  ASSERT_EQ(1U, rest.size());
  release_in_background(std::move(rest), other.id());
  EXPECT_FALSE(is_released());
  other.end();
  EXPECT_TRUE(is_released(kLimit));
  EXPECT_EQ(Departure::ended, board->departure_of(1));
}

/// Its program resets the GPU while a kernel runs.
TEST_F(BoardOfTwoProcesses, KernelsOfWhoDeparted_AreWaitedFor) {
  board->set_reaching(1, true);
  board->depart(1, Departure::gpu_reset);
  auto rest = leave();
  EXPECT_FALSE(is_released());
  ASSERT_EQ(1U, rest.size());
  release_in_background(std::move(rest), this_process());
  board->set_reaching(1, false);
  EXPECT_TRUE(is_released(kLimit));
}

/// Ranks that run ahead of each other, and want other levels all the time.
TEST(CallLevels, Threads_SameLevels) {
  constexpr int kRanks = 3;
  constexpr int kCalls = 4000;
  constexpr int kAhead = 50;
  const auto segment = ControlSegment::make(kRanks);
  std::array<CallLevels, kRanks> ranks{CallLevels(*segment, 0), CallLevels(*segment, 1),
                                       CallLevels(*segment, 2)};
  std::array<std::vector<std::uint8_t>, kRanks> levels;
  std::array<std::atomic<int>, kRanks> calls{};
  // Ranks that have issued no call cancel nothing.
  ranks[0].propose(1);
  levels[0].push_back(ranks[0].begin_call());
  on_threads(kRanks, [&](std::size_t rank) {
    std::mt19937 random(static_cast<unsigned>(rank));
    while (levels[rank].size() < kCalls) {
      if (random() % 4 == 0) ranks.at(rank).propose(static_cast<std::uint8_t>(random() % 3));
      levels[rank].push_back(ranks.at(rank).begin_call());
      calls.at(rank) = static_cast<int>(levels[rank].size());
      while (calls.at(rank) >
             kAhead + std::min({calls[0].load(), calls[1].load(), calls[2].load()}))
        std::this_thread::yield();
    }
  });
  EXPECT_EQ(levels[1], levels[0]);
  EXPECT_EQ(levels[2], levels[0]);
  EXPECT_EQ(levels[0][0], 0);
  EXPECT_EQ(levels[0][1], 1);
}

TEST(ProcessWatch, SeesAnEnd) {
  EXPECT_FALSE(ProcessWatch(this_process()).ended());
  Sleeper process;
  ProcessId id{process.pid(), 0};
  // Another that has this number now is not it.
  EXPECT_TRUE(ProcessWatch(id).ended());
  ProcessId self = this_process();
  ++self.start_ticks;
  EXPECT_TRUE(ProcessWatch(self).ended());
}

}  // namespace
}  // namespace polypath::test
