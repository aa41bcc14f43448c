// A communicator is created on all ranks, or on none, for one reason.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>

#include "base/error.hpp"
#include "base/log.hpp"
#include "comm/bootstrap.hpp"
#include "comm/late_release.hpp"
#include "comm/thread_bootstrap.hpp"
#include "driver/fault_injection.hpp"
#include "group.hpp"
#include "support/driver_extras.hpp"

namespace polypath::test {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::Each;
using testing::HasSubstr;

class Creation : public testing::Test {
 protected:
  void SetUp() override { NEEDS_GPUS(2); }
};

int ranks() { return gpus_up_to(3); }

/// What each rank of a group throws that is made with these options.
std::vector<std::string> creation_failures(GroupOptions options) {
  const auto exchanges = thread_exchanges(ranks(), options.time_limit);
  const NodeSource& source = group_node();
  return failures_on_threads(ranks(), [&](int rank) {
    const auto at = static_cast<std::size_t>(rank);
    CommunicatorOptions rank_options;
    rank_options.rank = rank;
    rank_options.size = ranks();
    rank_options.gpu = options.gpus.empty() ? rank : options.gpus.at(at);
    rank_options.exchange = exchanges[at];
    rank_options.time_limit = options.time_limit;
    if (options.alter) options.alter(rank_options);
    const Communicator comm(options.driver == nullptr ? source.driver : options.driver, source.node,
                            rank_options);
  });
}

/// The same when what rank 1 says first is altered on its way.
std::vector<std::string> failures_with(const std::function<void(Hello&)>& alter) {
  return creation_failures({.alter = [&](CommunicatorOptions& options) {
    if (options.rank != 1) return;
    options.exchange = [&, inner = options.exchange](std::span<const std::byte> local,
                                                     std::span<std::byte> all) {
      if (local.size() != sizeof(Hello)) return inner(local, all);
      Hello hello;
      std::memcpy(&hello, local.data(), sizeof hello);
      alter(hello);
      inner(std::as_bytes(std::span(&hello, 1)), all);
    };
  }});
}

TEST_F(Creation, RanksOfDifferentVersions) {
  EXPECT_THAT(failures_with([](Hello& hello) { hello.version = {"9.9.9"}; }),
              Each(HasSubstr("rank 1 runs 9.9.9: start all with the same one")));
  EXPECT_THAT(failures_with([](Hello& hello) { ++hello.protocol; }),
              Each(HasSubstr("rank 1 runs")));
  EXPECT_THAT(failures_with([](Hello& hello) { hello.magic = 0; }),
              Each(HasSubstr("rank 1 sent no greeting of polypath")));
}

TEST_F(Creation, RanksOfOtherMachinesContainersUsers) {
  EXPECT_THAT(failures_with([](Hello& hello) { ++hello.machine.low; }),
              Each(HasSubstr("ranks 0 and 1 are on different machines")));
  EXPECT_THAT(failures_with([](Hello& hello) { ++hello.pid_namespace; }),
              Each(HasSubstr("ranks 0 and 1 are in different PID namespaces")));
  EXPECT_THAT(failures_with([](Hello& hello) { hello.user += 7; }),
              Each(HasSubstr("processes of one user only")));
}

TEST_F(Creation, RanksWithOtherOrdersOfSums) {
  EXPECT_THAT(
      creation_failures({.alter =
                             [](CommunicatorOptions& options) {
                               if (options.rank == ranks() - 1)
                                 options.sum_order = POLYPATH_SUM_ORDER_TREE;
                             }}),
      Each(HasSubstr(fmt::format("the order of sums (sum_order) of rank 0 is 'rank', that of "
                                 "rank {} is 'tree'",
                                 ranks() - 1))));
}

TEST_F(Creation, RanksThatDoNotFit) {
  EXPECT_THAT(failures_with([](Hello& hello) { hello.size = 4; }),
              Each(HasSubstr(fmt::format("rank 0 says {} ranks, rank 1 says 4", ranks()))));
  EXPECT_THAT(failures_with([](Hello& hello) { hello.rank = 0; }),
              Each(HasSubstr("what came from rank 0 stands in the place of rank 1")));
  std::vector<int> gpus(static_cast<std::size_t>(ranks()));
  std::iota(gpus.begin(), gpus.end(), 0);
  gpus.front() = gpus.back();
  EXPECT_THAT(creation_failures({.gpus = gpus}),
              Each(HasSubstr(fmt::format("ranks 0 and {} have the same GPU", ranks() - 1))));
  gpus.front() = 0;
  gpus[1] = 99;
  EXPECT_THAT(creation_failures({.gpus = gpus}), Each(HasSubstr("rank 1: gpu99 is none of the")));
}

TEST_F(Creation, InvisibleGpu_IsNamedOnAllRanks) {
  EXPECT_THAT(failures_with([](Hello& hello) { hello.gpu_uuid[3] ^= 1; }),
              Each(AllOf(HasSubstr("the GPU of rank 1 is not visible here"),
                         HasSubstr("CUDA_VISIBLE_DEVICES"))));
}

TEST_F(Creation, PairWithoutPeerAccess_AllMeetOnHost) {
  const auto driver = std::make_shared<CudaDriver>(*group_node().driver);
  driver->device_can_access_peer = [](int* can, CUdevice from, CUdevice to) -> CUresult {
    *can = from + to == 2 * ranks() - 3 ? 0 : 1;  // not between the last two
    return CUDA_SUCCESS;
  };
  Group group(ranks(), {.driver = driver});
  group.run([](Communicator& comm) {
    EXPECT_FALSE(comm.has_peer_access()) << "rank " << comm.rank();
    const Stream stream(comm.driver(), comm.context());
    for (int i = 0; i < 3; ++i) comm.barrier(stream.get());
    POLYPATH_CHECK(comm.driver(), stream_synchronize(stream.get()));
    comm.check();
  });
}

TEST_F(Creation, AbsentRank_IsNamedAfterTheTimeout) {
  const auto exchanges = thread_exchanges(2, std::chrono::milliseconds(100));
  CommunicatorOptions options;
  options.size = 2;
  options.exchange = exchanges[0];
  const NodeSource& source = group_node();
  try {
    const Communicator comm(source.driver, source.node, options);
    FAIL() << "created without rank 1";
  } catch (const CommunicatorError& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 1 did not come within 100 ms"));
  }
}

TEST_F(Creation, WrongOptions) {
  const NodeSource& source = group_node();
  const auto make = [&](const CommunicatorOptions& options) {
    const Communicator comm(source.driver, source.node, options);
  };
  CommunicatorOptions options;
  EXPECT_THROW(make(options), InvalidArgument);  // no exchange
  options.exchange = thread_exchanges(1, std::chrono::minutes(5)).front();
  options.size = 0;
  EXPECT_THROW(make(options), InvalidArgument);
  options.size = 1;
  options.time_limit = std::chrono::milliseconds(0);
  EXPECT_THROW(make(options), InvalidArgument);
}

/// Releases the references to the context of a GPU that failing calls left. It must be unused.
void release_unused_context(const CudaDriver& driver, int gpu) {
  unsigned flags = 0;
  int is_active = 0;
  while (driver.primary_ctx_get_state(gpu, &flags, &is_active) == CUDA_SUCCESS && is_active != 0)
    POLYPATH_CHECK(driver, primary_ctx_release(gpu));
}

/// Every call to the driver fails in turn, on any rank: all ranks fail alike, or none
/// does, and nothing is left.
TEST_F(Creation, EveryDriverCallMayFail) {
  if (!group_node().simulated) GTEST_SKIP() << "on simulated nodes only";
  set_log_level(LogLevel::off);
  const CudaDriver& driver = *group_node().driver;
  std::optional<Group> keeps_contexts(std::in_place, ranks());
  FaultInjector injector(group_node().driver);
  std::uint64_t calls = 1;
  std::uint64_t failed = 0;
  for (std::uint64_t n = 0; n <= calls; ++n) {
    const LiveObjects before = live_objects(driver);
    injector.clear();
    if (n > 0) injector.fail_call(n, CUDA_ERROR_OUT_OF_MEMORY);
    const auto exchanges = thread_exchanges(ranks(), std::chrono::minutes(5));
    std::vector<int> created(exchanges.size());
    const auto failures = failures_on_threads(ranks(), [&](int rank) {
      CommunicatorOptions rank_options;
      rank_options.rank = rank;
      rank_options.size = ranks();
      rank_options.gpu = rank;
      rank_options.exchange = exchanges[static_cast<std::size_t>(rank)];
      rank_options.time_limit = std::chrono::minutes(5);
      Communicator comm(injector.driver(), group_node().node, rank_options);
      created[static_cast<std::size_t>(rank)] = 1;
      SymmetricMemory memory;
      try {
        memory = comm.alloc(1000);
      } catch (const CommunicatorError&) {
        if (comm.aborted()) throw;
        memory = comm.alloc(1000);  // memory was short once, on one rank
      }
      std::shared_ptr<const SharedHostMemory> host;
      try {
        host = comm.alloc_host(1000);
      } catch (const CommunicatorError&) {
        if (comm.aborted()) throw;
        host = comm.alloc_host(1000);
      }
      comm.free(std::move(memory));
    });
    wait_for_late_releases();
    const std::string who = injector.last_failed();
    EXPECT_THAT(created, AnyOf(Each(0), Each(1))) << who;
    if (n == 0) calls = injector.calls();
    if (!std::ranges::all_of(failures, &std::string::empty)) ++failed;
    // What fails once all have agreed, a free for example, is that rank's own error.
    if (std::ranges::none_of(failures, &std::string::empty)) {
      EXPECT_THAT(failures, Each(failures[0])) << who;
    }
    // What could not be destroyed is left.
    if (who.find("Free") == std::string::npos && who.find("Destroy") == std::string::npos &&
        who.find("Unregister") == std::string::npos && who.find("Release") == std::string::npos &&
        who.find("PushCurrent") == std::string::npos) {
      EXPECT_EQ(before, live_objects(driver)) << "call " << n << ", " << who;
    }
  }
  set_log_level(LogLevel::warn);
  EXPECT_GT(failed, calls / 4);
  keeps_contexts.reset();
  for (int gpu = 0; gpu < ranks(); ++gpu) release_unused_context(driver, gpu);
}

}  // namespace
}  // namespace polypath::test
