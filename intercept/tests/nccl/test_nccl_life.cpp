// How communicators begin and end next to calls that are taken: those of newer versions, graphs in
// capture, and ranks that give up while other threads call.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <cerrno>
#include <random>
#include <thread>

#include "nccl_sums.hpp"

namespace {

/// Of the calling thread: it can make so many threads more.
thread_local int threads_left = 1 << 20;

}  // namespace

/// For all libraries of this process.
extern "C" [[gnu::visibility("default")]] int pthread_create(pthread_t* thread,
                                                             const pthread_attr_t* attributes,
                                                             void* (*start)(void*),
                                                             void* argument) {
  if (--threads_left < 0) return EAGAIN;
  static const auto real =
      reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  return real(thread, attributes, start, argument);
}

namespace polypath::test {
namespace {

using testing::Each;

constexpr int kRanks = 4;
constexpr int kRemoteError = 6;

/// Of a communicator whose other ranks are gone, or are going.
int error_of(const NcclRank& its) {
  int error = 0;
  while (error == 0) {
    NCCL_OK(its.nccl.ncclCommGetAsyncError(its.comm, &error));
    std::this_thread::yield();
  }
  return error;
}

TEST(NcclLife, CommunicatorsOfSeveralIdsAreTaken) {
  const CountsOf calls("ncclAllReduce");
  std::array<NcclId, 2> ids{};
  for (NcclId& id : ids) NCCL_OK(NcclApi::get().ncclGetUniqueId(&id));
  EXPECT_THAT(on_nccl_ranks(
                  3, [](NcclRank& its) { expect_sum(its, 901, 1); },
                  [&](NcclRank& its, const NcclId&) {
                    NCCL_OK(its.nccl.ncclCommInitRankScalable(&its.comm, its.size, its.rank, 2,
                                                              ids.data(), nullptr));
                  }),
              Each(""));
  EXPECT_EQ(calls.taken(), 3);
}

/// Of its ranks 2 is left out.
void shrink(NcclRank& its, int flags) {
  int excluded = 2;
  void* part = nullptr;
  NCCL_OK(its.nccl.ncclCommShrink(its.comm, &excluded, 1, &part, nullptr, flags));
  NCCL_OK(its.nccl.ncclCommDestroy(its.comm));
  its.comm = part;
  NCCL_OK(its.nccl.ncclCommUserRank(part, &its.rank));
  NCCL_OK(its.nccl.ncclCommCount(part, &its.size));
}

TEST(NcclLife, ShrunkenCommunicator_IsOffloaded) {
  const CountsOf calls("ncclAllReduce");
  EXPECT_THAT(on_nccl_ranks(kRanks,
                            [](NcclRank& its) {
                              expect_sum(its, 77, 1);
                              if (its.rank == 2) return;
                              shrink(its, 0);
                              EXPECT_EQ(its.size, 3);
                              expect_sum(its, 1001, 2);
                            }),
              Each(""));
  EXPECT_EQ(calls.taken(), kRanks + 3);
  EXPECT_EQ(calls.by_nccl(), 0);
}

/// Rank 2 never comes to a call that the others wait in.
TEST(NcclLife, ShrinkWithAbort_EndsWaitsForExcluded) {
  const CountsOf calls("ncclAllReduce");
  std::barrier gone(3);
  EXPECT_THAT(
      on_nccl_ranks(kRanks,
                    [&](NcclRank& its) {
                      if (its.rank == 2) {
                        EXPECT_EQ(error_of(its), kRemoteError);
                        NCCL_OK(its.nccl.ncclCommAbort(its.comm));
                        its.comm = nullptr;
                        return;
                      }
                      DeviceBytes buffer(400);
                      NCCL_OK(its.nccl.ncclAllReduce(buffer.get(), buffer.get(), 100, kFloat32,
                                                     kSum, its.comm, its.streams[0]));
                      // Who shrinks first ends the call of the others on their streams.
                      gone.arrive_and_wait();
                      shrink(its, 1);
                      its.synchronize();
                      expect_sum(its, 1003, 3);
                    }),
      Each(""));
  EXPECT_EQ(calls.taken(), 3 + 3);
}

TEST(NcclLife, RevokeEndsTheWaitsOfAllRanks) {
  EXPECT_THAT(on_nccl_ranks(2,
                            [](NcclRank& its) {
                              DeviceBytes buffer(4000);
                              if (its.rank == 0) {
                                NCCL_OK(its.nccl.ncclCommRevoke(its.comm, 0));
                                // As NCCL has it: it knows of its own revoke.
                                int error = -1;
                                NCCL_OK(its.nccl.ncclCommGetAsyncError(its.comm, &error));
                                EXPECT_EQ(error, 0);
                              } else {
                                static_cast<void>(its.nccl.ncclAllReduce(buffer.get(), buffer.get(),
                                                                         1000, kFloat32, kSum,
                                                                         its.comm, its.streams[0]));
                                EXPECT_EQ(error_of(its), kRemoteError);
                                its.synchronize();
                              }
                            }),
              Each(""));
}

/// It is an estimate: what was called in the group is not issued, now or later.
TEST(NcclLife, SimulatedGroup_IssuesNothing) {
  EXPECT_THAT(
      on_nccl_ranks(2,
                    [](NcclRank& its) {
                      DeviceBytes buffer(4000);
                      NCCL_OK(its.nccl.ncclGroupStart());
                      NCCL_OK(its.nccl.ncclAllReduce(buffer.get(), buffer.get(), 1000, kFloat32,
                                                     kSum, its.comm, its.streams[0]));
                      NCCL_OK(its.nccl.ncclGroupSimulateEnd(nullptr));
                      NCCL_OK(its.nccl.ncclGroupStart());
                      NCCL_OK(its.nccl.ncclGroupEnd());
                      its.synchronize();
                      EXPECT_EQ(buffer.all(), Bytes(4000, kPoison));
                      expect_sum(its, 300, 2);
                    }),
      Each(""));
}

TEST(NcclLife, RegisteredBuffersAreTakenToo) {
  const CountsOf calls("ncclAllReduce");
  EXPECT_THAT(
      on_nccl_ranks(2,
                    [](NcclRank& its) {
                      DeviceBytes buffer(404);
                      void* handle = nullptr;
                      NCCL_OK(its.nccl.ncclCommRegister(its.comm, buffer.get(), 404, &handle));
                      buffer.put(0, bytes_of(floats_of(its.rank, 101, 4)));
                      NCCL_OK(its.nccl.ncclAllReduce(buffer.get(), buffer.get(), 101, kFloat32,
                                                     kSum, its.comm, its.streams[0]));
                      its.synchronize();
                      expect_floats(buffer.all(), sum_of(2, 101, 4), "sum", its.rank);
                      NCCL_OK(its.nccl.ncclCommDeregister(its.comm, handle));
                    }),
      Each(""));
  EXPECT_EQ(calls.taken(), 2);
}

/// A worker that a program forks, and that ends what it finds in its memory.
TEST(NcclLife, ForkedChild_LeavesParentsCommunicators) {
  const CountsOf calls("ncclAllReduce");
  std::barrier together(2);
  EXPECT_THAT(
      on_nccl_ranks(2,
                    [&](NcclRank& its) {
                      NcclRank other = its;
                      NCCL_OK(its.nccl.ncclCommSplit(its.comm, 0, its.rank, &other.comm, nullptr));
                      expect_sum(its, 100, 1);
                      expect_sum(other, 100, 2);
                      // No other thread is in a call, and has a lock, while it is forked.
                      together.arrive_and_wait();
                      if (its.rank == 0) {
                        const pid_t child = fork();
                        if (child == 0) {
                          const bool is_well = its.nccl.ncclCommAbort(its.comm) == 0 &&
                                               its.nccl.ncclCommDestroy(other.comm) == 0;
                          _exit(is_well ? 0 : 1);
                        }
                        int status = -1;
                        EXPECT_EQ(waitpid(child, &status, 0), child);
                        EXPECT_EQ(status, 0);
                      }
                      together.arrive_and_wait();
                      for (NcclRank* const one : {&its, &other}) {
                        int error = -1;
                        NCCL_OK(its.nccl.ncclCommGetAsyncError(one->comm, &error));
                        EXPECT_EQ(error, 0);
                        expect_sum(*one, 200, 3);
                      }
                      NCCL_OK(its.nccl.ncclCommDestroy(other.comm));
                    }),
      Each(""));
  EXPECT_EQ(calls.taken(), 2 * 4);
}

/// One thread has both ranks, and makes them by ncclCommInitAll, or in a group.
class NcclWithoutThreads : public testing::TestWithParam<bool> {
 protected:
  /// Gives NCCL's first error.
  static int make(std::array<void*, 2>& comms) {
    const NcclApi& nccl = NcclApi::get();
    if (!GetParam()) return nccl.ncclCommInitAll(comms.data(), 2, std::array{0, 1}.data());
    NcclId id{};
    NCCL_OK(nccl.ncclGetUniqueId(&id));
    NCCL_OK(nccl.ncclGroupStart());
    for (int rank = 0; rank < 2; ++rank) {
      use_gpu(rank);
      NCCL_OK(nccl.ncclCommInitRank(&comms[static_cast<std::size_t>(rank)], 2, id, rank));
    }
    return nccl.ncclGroupEnd();
  }
  static void check(std::array<void*, 2>& comms) {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < 2; ++rank)
      threads.emplace_back([&, rank] {
        NcclRank its;
        its.rank = rank;
        its.size = 2;
        its.comm = comms[static_cast<std::size_t>(rank)];
        use_gpu(rank);
        for (CUstream& stream : its.streams)
          CUDA_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        expect_sum(its, 555, 6);
        EXPECT_EQ(its.nccl.ncclCommDestroy(its.comm), 0);
      });
  }
};

TEST_P(NcclWithoutThreads, GroupCreation_StaysWithNccl) {
  use_gpu(0);
  std::array<void*, 2> comms{};
  ASSERT_EQ(make(comms), 0);  // what is made once is there
  check(comms);
  for (const int left : {0, 1}) {
    const CountsOf calls("ncclAllReduce");
    threads_left = left;
    const int result = make(comms);
    threads_left = 1 << 20;
    ASSERT_EQ(result, 0);
    check(comms);
    EXPECT_EQ(calls.taken(), 0);
    EXPECT_EQ(calls.by_nccl(), 2);
  }
  EXPECT_GE(nccl_report()["refusals"].value("a thread could not be made", 0), 2 * 2);
  const CountsOf calls("ncclAllReduce");
  ASSERT_EQ(make(comms), 0);
  check(comms);
  EXPECT_EQ(calls.taken(), 2);
}

INSTANTIATE_TEST_SUITE_P(NcclLife, NcclWithoutThreads, testing::Bool());

/// Nor is one let go by a thread then.
TEST(NcclLife, CommunicatorsGoWithoutAThread) {
  const CountsOf calls("ncclAllReduce");
  EXPECT_THAT(on_nccl_ranks(2,
                            [](NcclRank& its) {
                              expect_sum(its, 300, 7);
                              threads_left = 0;
                              NCCL_OK(its.nccl.ncclCommDestroy(its.comm));
                              EXPECT_EQ(threads_left, -1);
                              its.comm = nullptr;
                            }),
              Each(""));
  EXPECT_EQ(calls.taken(), 2);
}

/// Captures of the mode that forbids most, while another communicator begins and goes.
TEST(NcclLife, CaptureSurvivesOtherCommunicatorsEnd) {
  constexpr std::size_t kCount = 777;
  std::barrier together(2);  // no rank's own calls come into the other's capture
  EXPECT_THAT(
      on_nccl_ranks(2,
                    [&](NcclRank& its) {
                      NcclRank other = its;
                      NCCL_OK(its.nccl.ncclCommSplit(its.comm, 0, its.rank, &other.comm, nullptr));
                      expect_sum(other, 10, 1);
                      DeviceBytes buffer(kCount * 4);
                      const std::size_t before = free_bytes();
                      CUgraph graph = nullptr;
                      CUgraphExec launched = nullptr;
                      together.arrive_and_wait();
                      CUDA_OK(cuStreamBeginCapture(its.streams[0], CU_STREAM_CAPTURE_MODE_GLOBAL));
                      const auto sum = [&] {
                        NCCL_OK(its.nccl.ncclAllReduce(buffer.get(), buffer.get(), kCount, kFloat32,
                                                       kSum, its.comm, its.streams[0]));
                      };
                      sum();
                      NCCL_OK(its.nccl.ncclCommDestroy(other.comm));
                      // Its memory is freed after this, by a thread of its own.
                      while (free_bytes() <= before) std::this_thread::yield();
                      sum();
                      CUDA_OK(cuStreamEndCapture(its.streams[0], &graph));
                      together.arrive_and_wait();
                      CUDA_OK(cuGraphInstantiate(&launched, graph, 0));
                      buffer.put(0, bytes_of(floats_of(its.rank, kCount, 5)));
                      CUDA_OK(cuGraphLaunch(launched, its.streams[0]));
                      its.synchronize();
                      // The sum of two equal sums.
                      std::vector<float> twice(kCount);
                      const Bytes once = sum_of(2, kCount, 5);
                      std::memcpy(twice.data(), once.data(), once.size());
                      for (float& one : twice) one += one;
                      expect_floats(buffer.all(), bytes_of(twice), "twice", its.rank);
                      CUDA_OK(cuGraphExecDestroy(launched));
                      CUDA_OK(cuGraphDestroy(graph));
                    }),
      Each(""));
}

/// Rank 0 resets its GPU with the communicator in use or after its end, as at the end of a program
/// or after an error; also where nobody tells of the reset (without the shim).
TEST(NcclLife, GpuReset_IsNoCrash) {
  enum class When : std::uint8_t { before_destroy, before_abort, behind_destroy, behind_abort };
  for (const When when :
       {When::before_destroy, When::before_abort, When::behind_destroy, When::behind_abort}) {
    SCOPED_TRACE(static_cast<int>(when));
    const bool aborts = when == When::before_abort || when == When::behind_abort;
    const bool is_behind = when == When::behind_destroy || when == When::behind_abort;
    const CountsOf calls("ncclAllReduce");
    std::barrier step(2);
    const auto body = [&](NcclRank& its) {
      expect_sum(its, 300, 1);
      step.arrive_and_wait();
      if (its.rank == 0) {
        const auto end = [&] {
          NCCL_OK(aborts ? its.nccl.ncclCommAbort(its.comm) : its.nccl.ncclCommDestroy(its.comm));
        };
        if (is_behind) end();
        std::this_thread::sleep_for(std::chrono::microseconds(std::random_device{}() % 3000));
        CUDA_OK(cuDevicePrimaryCtxReset(0));
        use_gpu(0);
        for (CUstream& stream : its.streams)
          CUDA_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        int error = 0;
        if (!is_behind) {
          NCCL_OK(its.nccl.ncclCommGetAsyncError(its.comm, &error));
          end();
        }
        its.comm = nullptr;
      }
      step.arrive_and_wait();
      // Time for a watchdog to look at what is gone.
      std::this_thread::sleep_for(std::chrono::milliseconds(60));
      if (its.rank == 1 && !aborts) {
        int error = -1;
        NCCL_OK(its.nccl.ncclCommGetAsyncError(its.comm, &error));
        EXPECT_EQ(error, 0) << "rank 0 has taken part in all calls";
      }
    };
    EXPECT_THAT(on_nccl_ranks(2, body), Each(""));
    EXPECT_EQ(calls.taken(), 2);
  }
}

/// With check=1 (a test of its own): the call is named, and not made again.
TEST(NcclChecked, CallsThatAreNotAlikeAreNamed) {
  if (std::getenv("POLYPATH_CHECK") == nullptr) GTEST_SKIP() << "needs check=1";
  testing::internal::CaptureStderr();
  EXPECT_THAT(on_nccl_ranks(2,
                            [](NcclRank& its) {
                              DeviceBytes buffer(4000);
                              const std::size_t count = its.rank == 0 ? 1000 : 999;
                              EXPECT_NE(
                                  its.nccl.ncclAllReduce(buffer.get(), buffer.get(), count,
                                                         kFloat32, kSum, its.comm, its.streams[0]),
                                  0);
                              expect_sum(its, 100, 1);
                            }),
              Each(""));
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("the count of rank 1 (999) is not that of rank 0 (1000)"), std::string::npos)
      << said;
}

/// More than have room next to NCCL's kernels: the last ones are NCCL's. Those that were destroyed
/// make room at once.
TEST(NcclLife, ManyCommunicatorsLeaveRoomForNccls) {
  const CountsOf calls("ncclAllReduce");
  EXPECT_THAT(on_nccl_ranks(2,
                            [](NcclRank& its) {
                              for (unsigned time = 0; time < 3; ++time) {
                                std::vector<NcclRank> parts(7, its);
                                for (NcclRank& part : parts) {
                                  NCCL_OK(its.nccl.ncclCommSplit(its.comm, 0, its.rank, &part.comm,
                                                                 nullptr));
                                  expect_sum(part, 1000, time);
                                }
                                for (const NcclRank& part : parts)
                                  NCCL_OK(its.nccl.ncclCommDestroy(part.comm));
                              }
                            }),
              Each(""));
  // It and five parts have 48, 32, 8, and three times 4 of 132 multiprocessors, 32 are spared.
  EXPECT_EQ(calls.taken(), 2 * 3 * 5);
  EXPECT_EQ(calls.by_nccl(), 2 * 3 * 2);
}

/// A program's watchdog aborts while its own thread is in a call, or has a group open.
TEST(NcclLife, AnotherThreadAbortsDuringCalls) {
  for (unsigned time = 0; time < 12; ++time)
    EXPECT_THAT(on_nccl_ranks(2,
                              [&](NcclRank& its) {
                                DeviceBytes buffer(4000);
                                std::atomic<int> calls{0};
                                std::atomic<bool> goes_on{true};
                                std::jthread watchdog([&] {
                                  use_gpu(its.rank);
                                  while (calls < static_cast<int>(time)) std::this_thread::yield();
                                  goes_on = false;
                                  NCCL_OK(its.nccl.ncclCommAbort(its.comm));
                                });
                                while (goes_on) {
                                  const bool in_group = calls++ % 2 == 1;
                                  if (in_group) NCCL_OK(its.nccl.ncclGroupStart());
                                  // Whatever it says: it comes before, during or after the abort.
                                  static_cast<void>(its.nccl.ncclAllReduce(
                                      buffer.get(), buffer.get(), 1000, kFloat32, kSum, its.comm,
                                      its.streams[0]));
                                  if (in_group) static_cast<void>(its.nccl.ncclGroupEnd());
                                }
                                watchdog.join();
                                its.synchronize();
                                its.comm = nullptr;
                              }),
                Each(""));
}

}  // namespace
}  // namespace polypath::test
