// Ranks that are processes, and what happens when one of them goes.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <chrono>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "base/error.hpp"
#include "comm/process_events.hpp"
#include "comm/thread_bootstrap.hpp"
#include "driver/resources.hpp"
#include "memory.hpp"
#include "process_group.hpp"
#include "support/driver_extras.hpp"

namespace polypath::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

void meet(Communicator& comm) {
  std::vector<std::byte> all(static_cast<std::size_t>(comm.size()));
  comm.exchange(std::array<std::byte, 1>{}, all);
}

Bytes message(int from, int to, std::uint64_t round) {
  return random_bytes(50'003, 10000 * round + static_cast<std::uint64_t>(100 * from + to));
}

/// Ends all ranks, instead of leaving them waiting for this one.
void require(Communicator& comm, bool holds, const std::string& what) {
  if (holds) return;
  comm.abort(fmt::format("on rank {}: {}", comm.rank(), what));
  comm.check();
}

/// Every rank puts a message to every rank, with a signal, in each round; all bytes are compared.
void put_to_all(Communicator& comm, std::uint64_t rounds) {
  const CudaDriver& driver = comm.driver();
  const CurrentContext current(driver, comm.context());
  const auto size = static_cast<std::size_t>(comm.size());
  const auto own = static_cast<std::size_t>(comm.rank());
  const std::size_t bytes = message(0, 0, 0).size();
  SymmetricMemory inbox = comm.alloc(size * bytes);
  SymmetricMemory words = comm.alloc(8 * size);
  require(comm, read(driver, inbox.local(), inbox.bytes()) == Bytes(inbox.bytes()), "not zero");
  meet(comm);
  const Stream stream(driver, comm.context());
  CUdeviceptr out = 0;
  POLYPATH_CHECK(driver, mem_alloc(&out, size * bytes));
  for (std::uint64_t round = 1; round <= rounds; ++round) {
    for (std::size_t to = 0; to < size; ++to) {
      const int rank = static_cast<int>(to);
      write(driver, out + to * bytes, message(comm.rank(), rank, round));
      comm.put({rank, inbox, own * bytes, out + to * bytes, bytes}, {words, 8 * own, round},
               stream.get());
    }
    for (std::size_t from = 0; from < size; ++from)
      comm.wait_signal({words, 8 * from, round}, stream.get());
    POLYPATH_CHECK(driver, stream_synchronize(stream.get()));
    for (std::size_t from = 0; from < size; ++from)
      require(comm,
              read(driver, inbox.local() + from * bytes, bytes) ==
                  message(static_cast<int>(from), comm.rank(), round),
              fmt::format("other bytes from rank {} in round {}", from, round));
    comm.barrier(stream.get());
    POLYPATH_CHECK(driver, stream_synchronize(stream.get()));
  }
  POLYPATH_CHECK(driver, mem_free(out));
  comm.free(std::move(words));
  comm.free(std::move(inbox));
}

// ---- what works -------------------------------------------------------------

RANK_PROGRAM(puts_to_all) {
  const auto comm = self.create();
  for (int rank = 0; rank < comm->size(); ++rank)
    EXPECT_EQ(rank == self.rank(), comm->is_here(rank));
  put_to_all(*comm, 5);
  const auto half = comm->split(self.rank() / 2, 0);
  EXPECT_EQ(2, half->size());
  put_to_all(*half, 3);
  put_to_all(*comm, 1);
}
TEST(Processes, PutToAll) {
  NEEDS_GPUS(4);
  expect_all_well("puts_to_all", 4);
}

RANK_PROGRAM(shares_host_memory) {
  const auto comm = self.create();
  const CudaDriver& driver = comm->driver();
  const CurrentContext current(driver, comm->context());
  const std::size_t bytes = message(0, 0, 0).size();
  const auto memory = comm->alloc_host(bytes * static_cast<std::size_t>(comm->size()));
  CUdeviceptr own = 0;
  POLYPATH_CHECK(driver, mem_alloc(&own, bytes));
  for (std::size_t host = 0; host < comm->node().hosts.size(); ++host) {
    const auto at = [&](int rank) {
      return memory->address(static_cast<int>(host)) + static_cast<std::size_t>(rank) * bytes;
    };
    require(*comm, read(driver, at(self.rank()), bytes) == Bytes(bytes), "not zero");
    write(driver, own, message(self.rank(), 0, host));
    POLYPATH_CHECK(driver, memcpy_sync(at(self.rank()), own, bytes));
    meet(*comm);
    for (int rank = 0; rank < comm->size(); ++rank)
      require(*comm, read(driver, at(rank), bytes) == message(rank, 0, host),
              fmt::format("other bytes from rank {}", rank));
  }
  POLYPATH_CHECK(driver, mem_free(own));
  meet(*comm);
}
TEST(Processes, HostMemoryIsSharedByAll) {
  NEEDS_GPUS(4);
  expect_all_well("shares_host_memory", 4);
}

/// Two processes of two threads each; this process's share of the exchange goes by its first
/// thread.
RANK_PROGRAM(two_ranks_a_process) {
  const CommunicatorOptions outer = self.options();
  const auto inner = thread_exchanges(2, outer.time_limit);
  Bytes gathered;
  std::vector<std::unique_ptr<Communicator>> ranks(2);
  on_threads(2, [&](int thread) {
    const auto at = static_cast<std::size_t>(thread);
    CommunicatorOptions options;
    options.rank = 2 * self.rank() + thread;
    options.size = 4;
    options.gpu = options.rank;
    options.time_limit = outer.time_limit;
    options.exchange = [&, at](std::span<const std::byte> local, std::span<std::byte> all) {
      Bytes pair(2 * local.size());
      inner[at](local, pair);
      if (at == 0) {
        gathered.resize(2 * pair.size());
        outer.exchange(pair, gathered);
      }
      Bytes none(2);
      inner[at](std::span(none).first(1), none);
      std::ranges::copy(gathered, all.begin());
      inner[at](std::span(none).first(1), none);
    };
    ranks[at] = std::make_unique<Communicator>(self.source().driver, self.source().node, options);
    EXPECT_TRUE(ranks[at]->is_here(2 * self.rank() + 1 - thread));
    EXPECT_FALSE(ranks[at]->is_here((options.rank + 2) % 4));
    put_to_all(*ranks[at], 3);
  });
  // By one thread, one after another, in another order in each process.
  ranks[static_cast<std::size_t>(self.rank())].reset();
}
TEST(Processes, TwoRanksEach) {
  NEEDS_GPUS(4);
  expect_all_well("two_ranks_a_process", 2);
}

RANK_PROGRAM(leaves_first) {
  auto comm = self.create();
  if (self.rank() == 1) {
    comm.reset();
    return;
  }
  // A rank that has left in order is no failure; but nothing can be done together any more.
  self.reached("before the end of rank 1");
  comm->check();
  meet(*comm);
}
TEST(Processes, RankLeavesFirst_LaterExchangeNamesIt) {
  NEEDS_GPUS(3);
  ProcessGroup group("leaves_first", 3);
  for (const int rank : {0, 2}) group.wait_for(rank, "before the end of rank 1");
  group.go(0);
  EXPECT_THAT(group.result(0), HasSubstr("rank 1 destroyed the communicator before exchange"));
  group.go(2);
  EXPECT_NE("", group.result(2));
  EXPECT_EQ("", group.result(1));
}

// ---- a rank's memory outlives the others' use of it -------------------------

std::filesystem::path mark_of_rank_0;
CUresult (*plain_free)(CUdeviceptr) = nullptr;
CUresult checked_free(CUdeviceptr address) {
  EXPECT_TRUE(std::filesystem::exists(mark_of_rank_0)) << "freed while rank 0 has it open";
  return plain_free(address);
}
/// Rank 1 looks for the mark at each free.
std::unique_ptr<Communicator> create_checked(const RankProcess& self) {
  mark_of_rank_0 = std::getenv("POLYPATH_TEST_MARK");
  const auto driver = std::make_shared<CudaDriver>(*self.source().driver);
  plain_free = driver->mem_free;
  if (self.rank() == 1) driver->mem_free = checked_free;
  return std::make_unique<Communicator>(driver, self.source().node, self.options());
}
/// For the ranks that are made while it lives.
class Mark {
 public:
  explicit Mark(const char* name)
      : file_(testing::TempDir() + fmt::format("{}-{}", name, ::getpid())) {
    std::filesystem::remove(file_);
    ::setenv("POLYPATH_TEST_MARK", file_.c_str(), 1);
  }
  ~Mark() { std::filesystem::remove(file_); }
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;

 private:
  std::string file_;
};

RANK_PROGRAM(frees_last) {
  auto comm = create_checked(self);
  const SymmetricMemory memory = comm->alloc(100);
  self.reached("its end");
  if (self.rank() == 0) std::ofstream(mark_of_rank_0) << "it leaves now\n";
  comm.reset();
}
TEST(Processes, MemoryIsFreedWhenAllHaveLeft) {
  const Mark mark("comm-mark");
  NEEDS_GPUS(2);
  ProcessGroup group("frees_last", 2);
  group.wait_for(0, "its end");
  group.wait_for(1, "its end");
  group.go(1);
  // Time for rank 1 to do the wrong thing; the right one needs none.
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  group.go(0);
  expect_all_well(group, 2);
}

/// Rank 1 aborts and goes, while rank 0 may have kernels under way that have not seen the abort.
/// With POLYPATH_TEST_STAGE=abandoned rank 0 has left them to themselves: they end with its
/// process.
RANK_PROGRAM(frees_last_behind_an_abort) {
  const std::shared_ptr<const CudaDriver> driver = self.source().driver;
  auto comm = create_checked(self);
  const SymmetricMemory memory = comm->alloc(100);
  meet(*comm);
  if (self.rank() == 1) {
    const PrimaryContext context(*driver, 1);  // stays for the questions below
    const CurrentContext current(*driver, context.get());
    const auto free_bytes = [&] {
      std::size_t free = 0;
      std::size_t total = 0;
      POLYPATH_CHECK(*driver, mem_get_info(&free, &total));
      return free;
    };
    const std::size_t before = free_bytes();
    self.reached("its abort");
    comm->abort("the test wants it");
    comm.reset();
    EXPECT_EQ(before, free_bytes());
    self.reached("its end");
    while (free_bytes() <= before) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return;
  }
  if (RankProcess::ends_at("abandoned")) {
    comm->set_calls_in_flight([] { return true; });
    comm->abandon();
  }
  self.reached("its end");
  std::ofstream(mark_of_rank_0) << "it leaves now\n";
  comm.reset();
}
class Abort : public testing::TestWithParam<const char*> {};
TEST_P(Abort, KeepsMemoryThatOthersReach) {
  const Mark mark("comm-mark-abort");
  NEEDS_GPUS(2);
  ::setenv("POLYPATH_TEST_STAGE", GetParam(), 1);
  ProcessGroup group("frees_last_behind_an_abort", 2);
  ::unsetenv("POLYPATH_TEST_STAGE");
  group.wait_for(0, "its end");
  group.wait_for(1, "its abort");
  group.go(1);
  group.wait_for(1, "its end");
  group.go(1);
  group.go(0);
  expect_all_well(group, 2);
}
INSTANTIATE_TEST_SUITE_P(Processes, Abort, testing::Values("there", "abandoned"),
                         [](const auto& stage) { return as_name(stage.param); });

// ---- a rank goes ------------------------------------------------------------

/// Rank 1 stops at the stage POLYPATH_TEST_STAGE, and is killed there.
RANK_PROGRAM(one_is_killed) {
  CommunicatorOptions options = self.options();
  self.at("connected");
  int round = 0;
  options.exchange = [&, inner = options.exchange](std::span<const std::byte> local,
                                                   std::span<std::byte> all) {
    if (++round == 2) self.at("between the exchanges");
    inner(local, all);
  };
  const auto comm =
      std::make_unique<Communicator>(self.source().driver, self.source().node, options);
  const CurrentContext current(comm->driver(), comm->context());
  self.at("created");
  if (self.ends_at("created")) meet(*comm);
  self.at("alloc");
  const SymmetricMemory memory = comm->alloc(1 << 20);
  self.at("alloc host");
  const auto host = comm->alloc_host(1 << 20);
  self.at("idle");
  if (self.ends_at("idle"))
    while (!comm->aborted()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const Stream stream(comm->driver(), comm->context());
  self.at("barrier");
  comm->barrier(stream.get());
  self.at("signal");
  if (self.rank() != 1) comm->wait_signal({memory, 0, 1}, stream.get());
  POLYPATH_CHECK(comm->driver(), stream_synchronize(stream.get()));
  comm->check();
}

class ARankIsKilled : public testing::TestWithParam<const char*> {};
TEST_P(ARankIsKilled, AndAllOthersSaySo) {
  NEEDS_GPUS(3);
  const auto results = results_of_kill("one_is_killed", 3, GetParam());
  for (const std::size_t rank : {0, 2}) EXPECT_THAT(results[rank], HasSubstr("rank 1")) << rank;
}
INSTANTIATE_TEST_SUITE_P(InEveryStage, ARankIsKilled,
                         testing::Values("connected", "between the exchanges", "created", "alloc",
                                         "alloc host", "idle", "barrier", "signal"),
                         [](const auto& stage) { return as_name(stage.param); });

RANK_PROGRAM(one_gives_up) {
  const auto comm = self.create();
  const CurrentContext current(comm->driver(), comm->context());
  const Stream stream(comm->driver(), comm->context());
  if (self.rank() == 2) {
    self.reached("its end");
    comm->abort("rank 2 has lost its data");
  } else {
    comm->barrier(stream.get());
  }
  POLYPATH_CHECK(comm->driver(), stream_synchronize(stream.get()));
  comm->check();
}
TEST(Processes, RankAborts_AllGetItsReason) {
  NEEDS_GPUS(3);
  ProcessGroup group("one_gives_up", 3);
  group.wait_for(2, "its end");
  group.go(2);
  for (const int rank : {0, 1, 2})
    EXPECT_THAT(group.result(rank), HasSubstr("rank 2 has lost its data"));
}

/// Ends by itself, with the communicator in use.
RANK_PROGRAM(one_exits) {
  const auto comm = self.create();
  if (self.rank() == 0) ::_exit(0);
  meet(*comm);
}
TEST(Processes, RankExits_OthersNameIt) {
  NEEDS_GPUS(3);
  ProcessGroup group("one_exits", 3);
  for (const int rank : {1, 2})
    EXPECT_THAT(group.result(rank), AllOf(HasSubstr("rank 0 (process "), HasSubstr("has ended")));
}

/// Stopped for a while, as by a debugger: late, but not gone.
RANK_PROGRAM(one_is_late) {
  const auto comm = self.create();
  if (self.rank() == 1) self.reached("its break");
  put_to_all(*comm, 2);
}
TEST(Processes, LateRank_IsWaitedFor) {
  NEEDS_GPUS(2);
  ProcessGroup group("one_is_late", 2);
  group.wait_for(1, "its break");
  std::this_thread::sleep_for(std::chrono::seconds(1));
  group.go(1);
  expect_all_well(group, 2);
}

// ---- a GPU is reset ---------------------------------------------------------

CUresult reset_gpu(const CudaDriver& driver, int gpu) {
  return driver_function<CUresult(CUdevice)>(driver, "cuDevicePrimaryCtxReset_v2")(gpu);
}

void pause_at_random() {
  std::this_thread::sleep_for(std::chrono::microseconds(std::random_device{}() % 5000));
}

/// Rank 0 destroys its communicator, which waits for rank 1 in the background, and resets its GPU;
/// rank 1 comes later. With POLYPATH_TEST_STAGE=told the communicators are told of the reset.
RANK_PROGRAM(one_resets_its_gpu) {
  auto comm = self.create();
  meet(*comm);
  if (self.rank() == 1) {
    self.reached("its end");
    comm->check();
    return;
  }
  std::jthread background([&] { comm.reset(); });
  pause_at_random();
  if (RankProcess::ends_at("told")) announce_reset(0);
  EXPECT_EQ(CUDA_SUCCESS, reset_gpu(*self.source().driver, 0));
  // Events wait for no other rank.
  if (RankProcess::ends_at("told")) background.join();
  self.reached("its reset");
  pause_at_random();
}
class GpuReset : public testing::TestWithParam<const char*> {};
TEST_P(GpuReset, WhileACommunicatorEnds) {
  NEEDS_GPUS(2);
  ::setenv("POLYPATH_TEST_STAGE", GetParam(), 1);
  ProcessGroup group("one_resets_its_gpu", 2);
  ::unsetenv("POLYPATH_TEST_STAGE");
  group.wait_for(1, "its end");
  group.wait_for(0, "its reset");
  // Time for the watchdog of rank 0 to look at what is gone.
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  group.go(1);
  EXPECT_EQ("", group.result(1));
  group.go(0);
  EXPECT_EQ("", group.result(0));
}
INSTANTIATE_TEST_SUITE_P(Processes, GpuReset, testing::Values("told", "untold"),
                         [](const auto& stage) { return as_name(stage.param); });

/// Rank 0 has completed a call and resets its GPU, while the kernel of rank 1 may still write
/// there.
RANK_PROGRAM(one_resets_its_gpu_after_a_call) {
  const auto comm = self.create();
  const auto shared = comm->alloc_host(4096);
  auto& asked = *reinterpret_cast<std::atomic<int>*>(shared->address(0));
  constexpr int kUnderWay = 5;
  if (self.rank() == 1)
    comm->set_calls_in_flight([&asked] { return asked.fetch_add(1) < kUnderWay; });
  meet(*comm);
  if (self.rank() == 0) {
    announce_reset(0);
    EXPECT_GE(asked, kUnderWay) << "the reset did not wait for the end of the call";
    self.reached("its reset");
    return;
  }
  self.reached("its end");
  comm->set_calls_in_flight(nullptr);
}
TEST(Processes, GpuReset_WaitsForKernelsOfOthers) {
  NEEDS_GPUS(2);
  ProcessGroup group("one_resets_its_gpu_after_a_call", 2);
  group.wait_for(1, "its end");
  group.wait_for(0, "its reset");
  for (const int rank : {0, 1}) {
    group.go(rank);
    EXPECT_EQ("", group.result(rank));
  }
}

/// Rank 0 resets its GPU with the communicator in use; rank 1 finds it at its next call.
RANK_PROGRAM(one_resets_its_gpu_in_use) {
  const auto comm = self.create();
  const CurrentContext current(comm->driver(), comm->context());
  const Stream stream(comm->driver(), comm->context());
  meet(*comm);
  if (self.rank() == 0) {
    announce_reset(0);
    EXPECT_THROW(comm->check(), CommunicatorError);
    self.reached("its reset");
    return;
  }
  self.reached("its call");
  comm->barrier(stream.get());
  POLYPATH_CHECK(comm->driver(), stream_synchronize(stream.get()));
  comm->check();
}
TEST(Processes, GpuResetInUse_EndsWaitsOfOthers) {
  NEEDS_GPUS(2);
  ProcessGroup group("one_resets_its_gpu_in_use", 2);
  group.wait_for(0, "its reset");
  group.wait_for(1, "its call");
  group.go(1);
  EXPECT_THAT(group.result(1), HasSubstr("rank 0 reset its GPU while rank 1 waited"));
  group.go(0);
  EXPECT_EQ("", group.result(0));
}

RANK_PROGRAM(one_has_another_user) {
  const NodeSource& source = self.source();
  const CommunicatorOptions options = self.options();
  if (self.rank() == 1 && ::setresuid(65534, 65534, 65534) != 0) throw Error("no other user");
  const Communicator comm(source.driver, source.node, options);
}
TEST(Processes, OtherUser_IsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can run ranks as different users";
  NEEDS_GPUS(2);
  ProcessGroup group("one_has_another_user", 2);
  for (const int rank : {0, 1})
    EXPECT_THAT(group.result(rank), HasSubstr("rank 0 runs as user 0, rank 1 as user 65534"));
}

}  // namespace
}  // namespace polypath::test
