// Ends that are out of the ordinary: of a process whose communicators still have work, of work that
// takes longer than a minute, of communicators that are destroyed past the library, and of
// processes that are forked while a thread of their parent is in a first call; of a GPU that is
// reset.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <future>
#include <string_view>
#include <thread>

#include "nccl_sums.hpp"

namespace {

/// Pauses of libpolypath_nccl, by the thread that ends the process and by others; with `are_short`
/// those of others take no time.
std::atomic<bool> are_counted{false};
std::atomic<bool> are_short{false};
thread_local bool is_ending = false;
std::atomic<int> pauses_of_end{0};
std::atomic<int> pauses_of_others{0};

bool is_called_by_nccl_library(const void* caller) {
  Dl_info info{};
  return dladdr(caller, &info) != 0 &&
         std::string_view(info.dli_fname).find("libpolypath_nccl") != std::string_view::npos;
}

/// What dlopen() waits in: of files with this in their names, in this process; null: it does not.
std::atomic<const char*> blocked_name{nullptr};
pid_t blocked_process = 0;
std::atomic<bool> is_blocked{false};

}  // namespace

#define FOR_ALL_LIBRARIES extern "C" [[gnu::visibility("default")]]

FOR_ALL_LIBRARIES int nanosleep(const timespec* time, timespec* rest) {
  if (are_counted && is_called_by_nccl_library(__builtin_return_address(0))) {
    ++(is_ending ? pauses_of_end : pauses_of_others);
    // A yield takes as long as others on this CPU like: seldom.
    thread_local unsigned pauses = 0;
    if (!is_ending && are_short) return ++pauses % 256 == 0 ? sched_yield() : 0;
  }
  return static_cast<int>(syscall(SYS_nanosleep, time, rest));
}

FOR_ALL_LIBRARIES void* dlopen(const char* name, int flags) {
  static const auto real = reinterpret_cast<decltype(&dlopen)>(dlsym(RTLD_NEXT, "dlopen"));
  const char* const requested = blocked_name;
  if (requested != nullptr && getpid() == blocked_process && name != nullptr &&
      std::string_view(name).find(requested) != std::string_view::npos) {
    is_blocked = true;
    while (true) pause();
  }
  return real(name, flags);
}

namespace polypath::test {
namespace {

using testing::Each;
using testing::ExitedWithCode;

/// For what comes at once or never.
template <typename Condition>
bool comes(Condition&& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(5);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

/// Holds streams until it is released.
class Hold {
 public:
  void put_on(CUstream stream) {
    CUDA_OK(cuLaunchHostFunc(
        stream, [](void* hold) { static_cast<Hold*>(hold)->released_.wait(); }, this));
  }
  void release() { release_.set_value(); }

 private:
  std::promise<void> release_;
  std::shared_future<void> released_ = release_.get_future().share();
};

class NcclEnds : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  void TearDown() override { are_counted = are_short = false; }
};

/// Ends the process with communicators that were destroyed while their work is held. The exit code
/// says whether the end waited for that as long as it may.
[[noreturn]] void end_with_work_under_way() {
  // Registered before the library's, so called after it.
  std::atexit([] { _exit(pauses_of_end < 1000 ? 0 : 1); });
  static Hold hold;
  const auto thrown = on_nccl_ranks(2, [](NcclRank& member) {
    static std::barrier together(2);
    DeviceBytes buffer(4000);
    hold.put_on(member.streams[0]);
    NCCL_OK(member.nccl.ncclAllReduce(buffer.get(), buffer.get(), 1000, kFloat32, kSum, member.comm,
                                      member.streams[0]));
    NCCL_OK(member.nccl.ncclCommDestroy(member.comm));
    together.arrive_and_wait();
    if (member.rank != 0)
      std::this_thread::sleep_until(std::chrono::steady_clock::time_point::max());
    are_counted = is_ending = true;
    std::exit(2);
  });
  _exit(3);
}

TEST_F(NcclEnds, EndOfProcess_WaitsForNoWork) {
  EXPECT_EXIT(end_with_work_under_way(), ExitedWithCode(0), "");
}

/// Its pauses are more than a minute's.
TEST_F(NcclEnds, WorkOfMoreThanAMinute_IsWaitedFor) {
  Hold hold;
  std::barrier step(2);
  EXPECT_THAT(
      on_nccl_ranks(2,
                    [&](NcclRank& member) {
                      DeviceBytes buffer(4000);
                      expect_sum(member, 100, 1);
                      const std::size_t before = free_bytes();
                      hold.put_on(member.streams[0]);
                      NCCL_OK(member.nccl.ncclAllReduce(buffer.get(), buffer.get(), 1000, kFloat32,
                                                        kSum, member.comm, member.streams[0]));
                      are_counted = are_short = true;
                      NCCL_OK(member.nccl.ncclCommDestroy(member.comm));
                      member.comm = nullptr;
                      step.arrive_and_wait();
                      if (member.rank == 0) {
                        EXPECT_TRUE(comes([] { return pauses_of_others > 2 * 61'000; }));
                        hold.release();
                      }
                      member.synchronize();
                      EXPECT_TRUE(comes([&] { return free_bytes() > before; }));
                      step.arrive_and_wait();
                    }),
      Each(""));
}

/// As NCCL's own abort does: the program may free its buffers after it.
TEST_F(NcclEnds, Abort_WaitsForTheCallsOfItsRank) {
  pauses_of_end = 0;
  EXPECT_THAT(
      on_nccl_ranks(2,
                    [&](NcclRank& member) {
                      if (member.rank == 1) {
                        EXPECT_TRUE(comes([&] {
                          int error = 0;
                          NCCL_OK(member.nccl.ncclCommGetAsyncError(member.comm, &error));
                          return error != 0;
                        }));
                        return;
                      }
                      DeviceBytes buffer(4000);
                      Hold hold;
                      hold.put_on(member.streams[0]);
                      NCCL_OK(member.nccl.ncclAllReduce(buffer.get(), buffer.get(), 1000, kFloat32,
                                                        kSum, member.comm, member.streams[0]));
                      std::atomic<bool> has_returned{false};
                      std::jthread releasing([&] {
                        EXPECT_TRUE(comes([&] { return has_returned || pauses_of_end > 0; }));
                        hold.release();
                      });
                      are_counted = is_ending = true;
                      NCCL_OK(member.nccl.ncclCommAbort(member.comm));
                      member.comm = nullptr;
                      EXPECT_EQ(cuStreamQuery(member.streams[0]), CUDA_SUCCESS);
                      has_returned = true;
                      releasing.join();
                      member.synchronize();
                    }),
      Each(""));
}

/// As a profiler that wraps part of NCCL does it. NCCL gives the addresses away again.
TEST_F(NcclEnds, UnseenDestroy_IsNoticedByItsAddress) {
  const auto destroy_past_all =
      reinterpret_cast<void (*)(void*)>(dlsym(RTLD_DEFAULT, "nccl_standin_destroy"));
  std::array<NcclId, 2> ids{};
  for (NcclId& id : ids) NCCL_OK(NcclApi::get().ncclGetUniqueId(&id));
  std::barrier step(2);
  const CountsOf calls("ncclAllReduce");
  EXPECT_THAT(on_nccl_ranks(2,
                            [&](NcclRank& member) {
                              expect_sum(member, 100, 1);
                              const std::size_t before = free_bytes();
                              for (unsigned time = 0; time < 2; ++time) {
                                step.arrive_and_wait();
                                destroy_past_all(member.comm);
                                step.arrive_and_wait();
                                NCCL_OK(member.nccl.ncclCommInitRank(&member.comm, 2, ids.at(time),
                                                                     member.rank));
                                expect_sum(member, 200, 2);
                                EXPECT_TRUE(comes([&] { return free_bytes() >= before; }));
                              }
                              step.arrive_and_wait();
                            }),
              Each(""));
  EXPECT_EQ(calls.taken(), 2 * 3);
}

/// Rank 0 has completed its calls, and the kernel of rank 1 may still write into its memory. Under
/// the shim, which tells of resets.
TEST_F(NcclEnds, GpuReset_WaitsForKernelsOfOthers) {
  void* const driver = dlopen(std::getenv("POLYPATH_DRIVER_LIBRARY"), RTLD_NOW);
  const auto hold = reinterpret_cast<void (*)(int)>(dlsym(driver, "polypath_test_hold_events"));
  const auto held = reinterpret_cast<int (*)()>(dlsym(driver, "polypath_test_held_events"));
  std::barrier step(2);
  EXPECT_THAT(on_nccl_ranks(2,
                            [&](NcclRank& member) {
                              expect_sum(member, 300, 1);
                              step.arrive_and_wait();
                              if (member.rank == 0) {
                                hold(5);
                                CUDA_OK(cuDevicePrimaryCtxReset(0));
                                EXPECT_EQ(held(), 0) << "the reset came before the kernel's end";
                                hold(0);
                                use_gpu(0);
                                for (CUstream& stream : member.streams)
                                  CUDA_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
                              }
                              step.arrive_and_wait();
                            }),
              Each(""));
}

/// A child that is forked while another thread is in dlopen() of a file of this name, in the first
/// call of NCCL in this process. The exit code says whether the child's own calls return.
[[noreturn]] void fork_in_first_call(const char* name) {
  const NcclApi& nccl = NcclApi::get();
  NcclId id{};
  blocked_process = getpid();
  blocked_name = name;
  std::thread([&] {
    void* comm = nullptr;
    nccl.ncclCommInitRank(&comm, 2, id, 0);
  }).detach();
  if (!comes([] { return is_blocked.load(); })) _exit(2);
  const pid_t child = fork();
  if (child == 0) {
    std::array<void*, 2> comms{};
    nccl.ncclCommInitAll(comms.data(), 2, nullptr);  // with any result: the driver is the parent's
    _exit(0);
  }
  int status = -1;
  const bool has_ended = comes([&] { return waitpid(child, &status, WNOHANG) == child; });
  if (!has_ended) kill(child, SIGKILL);
  _exit(has_ended && status == 0 ? 0 : 1);
}

TEST_F(NcclEnds, ForkWhileTheEngineIsMade_IsNoHang) {
  EXPECT_EXIT(fork_in_first_call("libpolypath.so"), ExitedWithCode(0), "");
}
TEST_F(NcclEnds, ForkWhileNcclIsLookedFor_IsNoHang) {
  EXPECT_EXIT(fork_in_first_call("libnccl"), ExitedWithCode(0), "");
}

}  // namespace
}  // namespace polypath::test
