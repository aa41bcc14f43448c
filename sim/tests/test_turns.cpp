// Threads that issue work by turns of virtual time (polypath_sim_wait_turn): in the same order, at
// the same times, however long the machine holds one of them up.
#include <barrier>
#include <chrono>
#include <random>
#include <thread>

#include "fixture.hpp"

namespace polypath::sim::test {
namespace {

class Turns : public SimTest {
 protected:
  static constexpr int kThreads = 3;

  struct Turn {
    int number = 0;
    double us = 0;  ///< since the first turn
    bool operator==(const Turn&) const = default;
  };
  friend std::ostream& operator<<(std::ostream& out, const Turn& turn) {
    return out << turn.number << " at " << turn.us;
  }

  /// `body(number)` on threads that issue as 1, 2 and 3; each comes late by a random time.
  template <typename Body>
  std::vector<Turn> on_threads(unsigned seed, const Body& body) {
    log_.clear();
    std::barrier meeting(kThreads);
    std::vector<std::jthread> threads;
    for (int number = kThreads; number > 0; --number)
      threads.emplace_back([&, number] {
        EXPECT_CUDA(CUDA_SUCCESS, cuCtxSetCurrent(context(number - 1)));
        random_ = std::mt19937(seed * 8 + static_cast<unsigned>(number));
        idle();
        polypath_sim_set_issuer(number);
        meeting.arrive_and_wait();
        idle();
        body(number);
        polypath_sim_set_issuer(0);
      });
    threads.clear();
    for (std::size_t i = log_.size(); i > 0; --i) log_[i - 1].us -= log_.front().us;
    return log_;
  }
  /// The machine holds this thread up.
  static void idle() {
    std::this_thread::sleep_for(
        std::chrono::microseconds(std::uniform_int_distribution(0, 300)(random_)));
  }
  void turn(int number) {
    polypath_sim_wait_turn();
    idle();
    log_.push_back({number, polypath_sim_clock_us()});  // no other thread has a turn
  }

 private:
  static inline thread_local std::mt19937 random_;
  std::vector<Turn> log_;
};

TEST_F(Turns, EarliestThenLowestThread_IsNext) {
  for (unsigned seed = 0; seed < 5; ++seed) {
    const auto turns = on_threads(seed, [&](int number) {
      for (int i = 0; i < 4; ++i) {
        turn(number);
        polypath_sim_advance_us(number);
        idle();
      }
    });
    const std::vector<Turn> expected{{1, 0}, {2, 0}, {3, 0}, {1, 1}, {1, 2}, {2, 2},
                                     {1, 3}, {3, 3}, {2, 4}, {2, 6}, {3, 6}, {3, 9}};
    EXPECT_EQ(expected, turns) << seed;
  }
}

TEST_F(Turns, BlockingCall_LetsOthersIssue) {
  constexpr std::size_t kBytes = 4 * kMiB;
  std::vector<CUdeviceptr> from;
  std::vector<std::uint8_t*> to;
  for (int gpu = 0; gpu < kThreads; ++gpu) {
    from.push_back(allocate(gpu, kBytes));
    to.push_back(allocate_host(kBytes));
  }
  std::vector<Turn> first;
  for (unsigned seed = 0; seed < 5; ++seed) {
    const auto turns = on_threads(seed, [&](int number) {
      const auto gpu = static_cast<std::size_t>(number - 1);
      CUstream stream = nullptr;
      EXPECT_CUDA(CUDA_SUCCESS, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
      for (int i = 0; i < 6; ++i) {
        turn(number);
        EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyAsync(device(to[gpu]), from[gpu], kBytes / 4, stream));
        if (i % 3 == number - 1) {
          EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(stream));
          turn(number);
        }
        polypath_sim_advance_us(5);
      }
      EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(stream));
      EXPECT_CUDA(CUDA_SUCCESS, cuStreamDestroy(stream));
    });
    ASSERT_EQ(24U, turns.size());
    for (std::size_t i = 1; i < turns.size(); ++i) EXPECT_LE(turns[i - 1].us, turns[i].us) << i;
    if (first.empty()) first = turns;
    for (std::size_t i = 0; i < turns.size(); ++i) {
      EXPECT_EQ(first[i].number, turns[i].number) << i;
      EXPECT_NEAR(first[i].us, turns[i].us, 1e-6) << i;
    }
  }
  for (int gpu = 0; gpu < kThreads; ++gpu) {
    EXPECT_CUDA(CUDA_SUCCESS, cuMemFree(from[static_cast<std::size_t>(gpu)]));
    EXPECT_CUDA(CUDA_SUCCESS, cuMemFreeHost(to[static_cast<std::size_t>(gpu)]));
  }
}

TEST_F(Turns, ThreadsThatIssueNothingNeedNone) {
  polypath_sim_wait_turn();
  const auto turns = on_threads(1, [&](int number) {
    turn(number);
    polypath_sim_set_issuer(0);
    polypath_sim_wait_turn();
  });
  EXPECT_EQ((std::vector<Turn>{{1, 0}, {2, 0}, {3, 0}}), turns);
}

/// By POLYPATH_SIM_TIMEOUT, which is a second here.
TEST_F(Turns, AbsentThread_IsNotWaitedFor) {
  std::barrier meeting(2);
  const std::jthread absent([&] {
    polypath_sim_set_issuer(1);
    meeting.arrive_and_wait();  // it issues
    meeting.arrive_and_wait();  // and is there to the end, so no other thread has its number
  });
  meeting.arrive_and_wait();
  std::jthread([&] {
    polypath_sim_set_issuer(2);
    polypath_sim_advance_us(1);
    testing::internal::CaptureStderr();
    turn(2);
    EXPECT_EQ("polypath_sim: a thread that issues work waits for others in vain\n",
              testing::internal::GetCapturedStderr());
    polypath_sim_set_issuer(0);
  }).join();
  // Nor by what waits for devices.
  const CUdeviceptr memory = allocate(0, kMiB);
  EXPECT_CUDA(CUDA_SUCCESS, cuMemsetD8Async(memory, 1, kMiB, nullptr));
  EXPECT_CUDA(CUDA_SUCCESS, cuCtxSynchronize());
  EXPECT_CUDA(CUDA_SUCCESS, cuMemFree(memory));
  meeting.arrive_and_wait();
}

}  // namespace
}  // namespace polypath::sim::test
