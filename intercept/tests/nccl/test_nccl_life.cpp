// How communicators begin and end next to calls that are taken: those of newer versions, graphs in
// capture, and ranks that abort while other threads call.
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

/// Threads that the calling thread can still make.
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

/// The error of a communicator whose other ranks are gone, or are going.
int error_of(const NcclRank& member) {
  int error = 0;
  while (error == 0) {
    NCCL_OK(member.nccl.ncclCommGetAsyncError(member.comm, &error));
    std::this_thread::yield();
  }
  return error;
}

TEST(NcclLife, CommunicatorsOfSeveralIdsAreTaken) {
  const CountsOf calls("ncclAllReduce");
  std::array<NcclId, 2> ids{};
  for (NcclId& id : ids) NCCL_OK(NcclApi::get().ncclGetUniqueId(&id));
  EXPECT_THAT(on_nccl_ranks(
                  3, [](NcclRank& member) { expect_sum(member, 901, 1); },
                  [&](NcclRank& member, const NcclId&) {
                    NCCL_OK(member.nccl.ncclCommInitRankScalable(
                        &member.comm, member.size, member.rank, 2, ids.data(), nullptr));
                  }),
              Each(""));
  EXPECT_EQ(calls.taken(), 3);
}

/// Rank 2 is left out.
void shrink(NcclRank& member, int flags) {
  int excluded = 2;
  void* part = nullptr;
  NCCL_OK(member.nccl.ncclCommShrink(member.comm, &excluded, 1, &part, nullptr, flags));
  NCCL_OK(member.nccl.ncclCommDestroy(member.comm));
  member.comm = part;
  NCCL_OK(member.nccl.ncclCommUserRank(part, &member.rank));
  NCCL_OK(member.nccl.ncclCommCount(part, &member.size));
}

TEST(NcclLife, ShrunkenCommunicator_IsOffloaded) {
  const CountsOf calls("ncclAllReduce");
  EXPECT_THAT(on_nccl_ranks(kRanks,
                            [](NcclRank& member) {
                              expect_sum(member, 77, 1);
                              if (member.rank == 2) return;
                              shrink(member, 0);
                              EXPECT_EQ(member.size, 3);
                              expect_sum(member, 1001, 2);
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
                    [&](NcclRank& member) {
                      if (member.rank == 2) {
                        EXPECT_EQ(error_of(member), kRemoteError);
                        NCCL_OK(member.nccl.ncclCommAbort(member.comm));
                        member.comm = nullptr;
                        return;
                      }
                      DeviceBytes buffer(400);
                      NCCL_OK(member.nccl.ncclAllReduce(buffer.get(), buffer.get(), 100, kFloat32,
                                                        kSum, member.comm, member.streams[0]));
                      // The rank that shrinks first ends the call of the others on their streams.
                      gone.arrive_and_wait();
                      shrink(member, 1);
                      member.synchronize();
                      expect_sum(member, 1003, 3);
                    }),
      Each(""));
  EXPECT_EQ(calls.taken(), 3 + 3);
}

TEST(NcclLife, RevokeEndsTheWaitsOfAllRanks) {
  EXPECT_THAT(on_nccl_ranks(2,
                            [](NcclRank& member) {
                              DeviceBytes buffer(4000);
                              if (member.rank == 0) {
                                NCCL_OK(member.nccl.ncclCommRevoke(member.comm, 0));
                                // As NCCL has it: it knows of its own revoke.
                                int error = -1;
                                NCCL_OK(member.nccl.ncclCommGetAsyncError(member.comm, &error));
                                EXPECT_EQ(error, 0);
                              } else {
                                static_cast<void>(member.nccl.ncclAllReduce(
                                    buffer.get(), buffer.get(), 1000, kFloat32, kSum, member.comm,
                                    member.streams[0]));
                                EXPECT_EQ(error_of(member), kRemoteError);
                                member.synchronize();
                              }
                            }),
              Each(""));
}

/// It is an estimate: what was called in the group is not issued, now or later.
TEST(NcclLife, SimulatedGroup_IssuesNothing) {
  EXPECT_THAT(
      on_nccl_ranks(2,
                    [](NcclRank& member) {
                      DeviceBytes buffer(4000);
                      NCCL_OK(member.nccl.ncclGroupStart());
                      NCCL_OK(member.nccl.ncclAllReduce(buffer.get(), buffer.get(), 1000, kFloat32,
                                                        kSum, member.comm, member.streams[0]));
                      NCCL_OK(member.nccl.ncclGroupSimulateEnd(nullptr));
                      NCCL_OK(member.nccl.ncclGroupStart());
                      NCCL_OK(member.nccl.ncclGroupEnd());
                      member.synchronize();
                      EXPECT_EQ(buffer.all(), Bytes(4000, kPoison));
                      expect_sum(member, 300, 2);
                    }),
      Each(""));
}

TEST(NcclLife, RegisteredBuffersAreTakenToo) {
  const CountsOf calls("ncclAllReduce");
  EXPECT_THAT(on_nccl_ranks(
                  2,
                  [](NcclRank& member) {
                    DeviceBytes buffer(404);
                    void* handle = nullptr;
                    NCCL_OK(member.nccl.ncclCommRegister(member.comm, buffer.get(), 404, &handle));
                    buffer.put(0, bytes_of(floats_of(member.rank, 101, 4)));
                    NCCL_OK(member.nccl.ncclAllReduce(buffer.get(), buffer.get(), 101, kFloat32,
                                                      kSum, member.comm, member.streams[0]));
                    member.synchronize();
                    expect_floats(buffer.all(), sum_of(2, 101, 4), "sum", member.rank);
                    NCCL_OK(member.nccl.ncclCommDeregister(member.comm, handle));
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
                    [&](NcclRank& member) {
                      NcclRank other = member;
                      NCCL_OK(member.nccl.ncclCommSplit(member.comm, 0, member.rank, &other.comm,
                                                        nullptr));
                      expect_sum(member, 100, 1);
                      expect_sum(other, 100, 2);
                      // No other thread is in a call, and has a lock, while it is forked.
                      together.arrive_and_wait();
                      if (member.rank == 0) {
                        const pid_t child = fork();
                        if (child == 0) {
                          const bool is_well = member.nccl.ncclCommAbort(member.comm) == 0 &&
                                               member.nccl.ncclCommDestroy(other.comm) == 0;
                          _exit(is_well ? 0 : 1);
                        }
                        int status = -1;
                        EXPECT_EQ(waitpid(child, &status, 0), child);
                        EXPECT_EQ(status, 0);
                      }
                      together.arrive_and_wait();
                      for (NcclRank* const group_member : {&member, &other}) {
                        int error = -1;
                        NCCL_OK(member.nccl.ncclCommGetAsyncError(group_member->comm, &error));
                        EXPECT_EQ(error, 0);
                        expect_sum(*group_member, 200, 3);
                      }
                      NCCL_OK(member.nccl.ncclCommDestroy(other.comm));
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
        NcclRank member;
        member.rank = rank;
        member.size = 2;
        member.comm = comms[static_cast<std::size_t>(rank)];
        use_gpu(rank);
        for (CUstream& stream : member.streams)
          CUDA_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        expect_sum(member, 555, 6);
        EXPECT_EQ(member.nccl.ncclCommDestroy(member.comm), 0);
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

/// Nor does a thread destroy one then, or free what the last rank leaves.
TEST(NcclLife, CommunicatorsGoWithoutAThread) {
  const CountsOf calls("ncclAllReduce");
  EXPECT_THAT(on_nccl_ranks(2,
                            [](NcclRank& member) {
                              expect_sum(member, 300, 7);
                              threads_left = 0;
                              NCCL_OK(member.nccl.ncclCommDestroy(member.comm));
                              EXPECT_LT(threads_left, 0);
                              member.comm = nullptr;
                            }),
              Each(""));
  EXPECT_EQ(calls.taken(), 2);
}

/// Captures of the mode that forbids most, while another communicator begins and goes.
TEST(NcclLife, CaptureSurvivesOtherCommunicatorsEnd) {
  constexpr std::size_t kCount = 777;
  std::barrier together(2);  // no rank's own calls come into the other's capture
  EXPECT_THAT(
      on_nccl_ranks(
          2,
          [&](NcclRank& member) {
            NcclRank other = member;
            NCCL_OK(member.nccl.ncclCommSplit(member.comm, 0, member.rank, &other.comm, nullptr));
            expect_sum(other, 10, 1);
            DeviceBytes buffer(kCount * 4);
            const std::size_t before = free_bytes();
            CUgraph graph = nullptr;
            CUgraphExec launched = nullptr;
            together.arrive_and_wait();
            CUDA_OK(cuStreamBeginCapture(member.streams[0], CU_STREAM_CAPTURE_MODE_GLOBAL));
            const auto sum = [&] {
              NCCL_OK(member.nccl.ncclAllReduce(buffer.get(), buffer.get(), kCount, kFloat32, kSum,
                                                member.comm, member.streams[0]));
            };
            sum();
            NCCL_OK(member.nccl.ncclCommDestroy(other.comm));
            // Its memory is freed after this, by a thread of its own.
            while (free_bytes() <= before) std::this_thread::yield();
            sum();
            CUDA_OK(cuStreamEndCapture(member.streams[0], &graph));
            together.arrive_and_wait();
            CUDA_OK(cuGraphInstantiate(&launched, graph, 0));
            buffer.put(0, bytes_of(floats_of(member.rank, kCount, 5)));
            CUDA_OK(cuGraphLaunch(launched, member.streams[0]));
            member.synchronize();
            // The sum of two equal sums.
            std::vector<float> twice(kCount);
            const Bytes once = sum_of(2, kCount, 5);
            std::memcpy(twice.data(), once.data(), once.size());
            for (float& value : twice) value += value;
            expect_floats(buffer.all(), bytes_of(twice), "twice", member.rank);
            CUDA_OK(cuGraphExecDestroy(launched));
            CUDA_OK(cuGraphDestroy(graph));
          }),
      Each(""));
}

/// Rank 0 resets its GPU with the communicator in use or after its end, as at the end of a program
/// or after an error; also without notice of the reset (without the shim).
TEST(NcclLife, GpuReset_IsNoCrash) {
  enum class When : std::uint8_t { before_destroy, before_abort, behind_destroy, behind_abort };
  for (const When when :
       {When::before_destroy, When::before_abort, When::behind_destroy, When::behind_abort}) {
    SCOPED_TRACE(static_cast<int>(when));
    const bool aborts = when == When::before_abort || when == When::behind_abort;
    const bool is_behind = when == When::behind_destroy || when == When::behind_abort;
    const CountsOf calls("ncclAllReduce");
    std::barrier step(2);
    const auto body = [&](NcclRank& member) {
      expect_sum(member, 300, 1);
      step.arrive_and_wait();
      if (member.rank == 0) {
        const auto end = [&] {
          NCCL_OK(aborts ? member.nccl.ncclCommAbort(member.comm)
                         : member.nccl.ncclCommDestroy(member.comm));
        };
        if (is_behind) end();
        std::this_thread::sleep_for(std::chrono::microseconds(std::random_device{}() % 3000));
        CUDA_OK(cuDevicePrimaryCtxReset(0));
        use_gpu(0);
        for (CUstream& stream : member.streams)
          CUDA_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        int error = 0;
        if (!is_behind) {
          NCCL_OK(member.nccl.ncclCommGetAsyncError(member.comm, &error));
          end();
        }
        member.comm = nullptr;
      }
      step.arrive_and_wait();
      // Time for a watchdog to look at what is gone.
      std::this_thread::sleep_for(std::chrono::milliseconds(60));
      if (member.rank == 1 && !aborts) {
        int error = -1;
        NCCL_OK(member.nccl.ncclCommGetAsyncError(member.comm, &error));
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
                            [](NcclRank& member) {
                              DeviceBytes buffer(4000);
                              const std::size_t count = member.rank == 0 ? 1000 : 999;
                              EXPECT_NE(member.nccl.ncclAllReduce(buffer.get(), buffer.get(), count,
                                                                  kFloat32, kSum, member.comm,
                                                                  member.streams[0]),
                                        0);
                              expect_sum(member, 100, 1);
                            }),
              Each(""));
  const std::string messages = testing::internal::GetCapturedStderr();
  EXPECT_NE(messages.find("the count of rank 1 (999) is not that of rank 0 (1000)"),
            std::string::npos)
      << messages;
}

/// More than have room next to NCCL's kernels: the last ones are NCCL's. Those that were destroyed
/// make room at once.
TEST(NcclLife, ManyCommunicatorsLeaveRoomForNccls) {
  const CountsOf calls("ncclAllReduce");
  EXPECT_THAT(on_nccl_ranks(2,
                            [](NcclRank& member) {
                              for (unsigned time = 0; time < 3; ++time) {
                                std::vector<NcclRank> parts(26, member);
                                for (NcclRank& part : parts) {
                                  NCCL_OK(member.nccl.ncclCommSplit(member.comm, 0, member.rank,
                                                                    &part.comm, nullptr));
                                  expect_sum(part, 1000, time);
                                }
                                for (const NcclRank& part : parts)
                                  NCCL_OK(member.nccl.ncclCommDestroy(part.comm));
                              }
                            }),
              Each(""));
  // There are 132 multiprocessors, and 32 are spared. The communicator and 24 parts have four each.
  EXPECT_EQ(calls.taken(), 2 * 3 * 24);
  EXPECT_EQ(calls.by_nccl(), 2 * 3 * 2);
}

/// A program's watchdog aborts while its own thread is in a call, or has a group open.
TEST(NcclLife, AnotherThreadAbortsDuringCalls) {
  for (unsigned time = 0; time < 12; ++time)
    EXPECT_THAT(on_nccl_ranks(2,
                              [&](NcclRank& member) {
                                DeviceBytes buffer(4000);
                                std::atomic<int> calls{0};
                                std::atomic<bool> goes_on{true};
                                std::jthread watchdog([&] {
                                  use_gpu(member.rank);
                                  while (calls < static_cast<int>(time)) std::this_thread::yield();
                                  goes_on = false;
                                  NCCL_OK(member.nccl.ncclCommAbort(member.comm));
                                });
                                while (goes_on) {
                                  const bool in_group = calls++ % 2 == 1;
                                  if (in_group) NCCL_OK(member.nccl.ncclGroupStart());
                                  // With any result: it comes before, during or after the abort.
                                  static_cast<void>(member.nccl.ncclAllReduce(
                                      buffer.get(), buffer.get(), 1000, kFloat32, kSum, member.comm,
                                      member.streams[0]));
                                  if (in_group) static_cast<void>(member.nccl.ncclGroupEnd());
                                }
                                watchdog.join();
                                member.synchronize();
                                member.comm = nullptr;
                              }),
                Each(""));
}

}  // namespace
}  // namespace polypath::test
