// Ranks that are threads of one process.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "comm/late_release.hpp"
#include "group.hpp"
#include "memory.hpp"
#include "support/driver_extras.hpp"
#include "support/gate.hpp"

namespace polypath::test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

std::vector<std::uint64_t> gather(Communicator& comm, std::uint64_t local) {
  std::vector<std::uint64_t> all(static_cast<std::size_t>(comm.size()), ~local);
  comm.exchange(std::as_bytes(std::span(&local, 1)), std::as_writable_bytes(std::span(all)));
  return all;
}

TEST(Threads, EachRankHasItsGpu) {
  NEEDS_GPUS(2);
  const int ranks = gpus_up_to(4);
  std::vector<int> gpus;
  for (int rank = 0; rank < ranks; ++rank) gpus.push_back((rank + 1) % ranks);
  Group group(ranks, {.gpus = gpus});
  group.run([&](Communicator& comm) {
    EXPECT_EQ(ranks, comm.size());
    EXPECT_EQ(gpus[static_cast<std::size_t>(comm.rank())], comm.gpu());
    for (int rank = 0; rank < ranks; ++rank)
      EXPECT_EQ(gpus[static_cast<std::size_t>(rank)], comm.gpu_of(rank));
    EXPECT_TRUE(comm.is_here((comm.rank() + 1) % ranks));
    EXPECT_NO_THROW(comm.check());
  });
}

TEST(Threads, ExchangesFollowEachOtherWithoutMixing) {
  NEEDS_GPUS(2);
  Group group(gpus_up_to(4));
  group.run([](Communicator& comm) {
    for (std::uint64_t round = 0; round < 500; ++round) {
      const auto all = gather(comm, round << 8 | static_cast<std::uint64_t>(comm.rank()));
      for (std::uint64_t rank = 0; rank < all.size(); ++rank)
        ASSERT_EQ(round << 8 | rank, all[rank]);
    }
  });
}

TEST(Threads, ExchangesOfAnySize) {
  NEEDS_GPUS(2);
  Group group(gpus_up_to(3));
  group.run([](Communicator& comm) {
    for (const std::size_t bytes : {0, 1, 4000, 4096, 50'000, 100'001}) {
      const auto contents = [&](int rank) {
        return random_bytes(bytes, bytes + static_cast<std::size_t>(rank));
      };
      Bytes all(static_cast<std::size_t>(comm.size()) * bytes, std::byte{0xEE});
      comm.exchange(contents(comm.rank()), all);
      Bytes expected;
      for (int rank = 0; rank < comm.size(); ++rank) {
        const Bytes part = contents(rank);
        expected.insert(expected.end(), part.begin(), part.end());
      }
      ASSERT_TRUE(expected == all) << bytes << " bytes";
    }
  });
}

TEST(Threads, HostMemoryIsZeroAndSharedByAll) {
  NEEDS_GPUS(2);
  Group group(gpus_up_to(4));
  std::vector<const SharedHostMemory*> seen(static_cast<std::size_t>(group.size()));
  group.run([&](Communicator& comm) {
    const CudaDriver& driver = comm.driver();
    constexpr std::size_t kPart = 3 * 4096 + 8;
    const std::size_t bytes = static_cast<std::size_t>(comm.size()) * kPart;
    const auto memory = comm.alloc_host(bytes);
    EXPECT_EQ(bytes, memory->bytes());
    seen[static_cast<std::size_t>(comm.rank())] = memory.get();
    for (std::size_t host = 0; host < comm.node().hosts.size(); ++host) {
      const CUdeviceptr at = memory->address(static_cast<int>(host));
      const auto contents = [&](int rank) {
        return random_bytes(kPart, 10 * host + static_cast<std::size_t>(rank));
      };
      EXPECT_TRUE(read(driver, at, bytes) == Bytes(bytes)) << "not zero";
      (void)gather(comm, 0);
      CUdeviceptr own = 0;  // so that the rank's GPU writes it
      POLYPATH_CHECK(driver, mem_alloc(&own, kPart));
      write(driver, own, contents(comm.rank()));
      POLYPATH_CHECK(driver,
                     memcpy_sync(at + static_cast<std::size_t>(comm.rank()) * kPart, own, kPart));
      POLYPATH_CHECK(driver, mem_free(own));
      (void)gather(comm, 1);
      for (int rank = 0; rank < comm.size(); ++rank)
        EXPECT_TRUE(read(driver, at + static_cast<std::size_t>(rank) * kPart, kPart) ==
                    contents(rank))
            << rank;
    }
    EXPECT_THROW(comm.alloc_host(0), InvalidArgument);
    (void)gather(comm, 2);
  });
  EXPECT_THAT(seen, Each(seen[0]));
}

TEST(Threads, SymmetricMemoryIsZeroAndReachedByAll) {
  NEEDS_GPUS(2);
  Group group(gpus_up_to(4));
  group.run([](Communicator& comm) {
    const CudaDriver& driver = comm.driver();
    constexpr std::size_t kPart = 3 * 4096 + 8;
    const std::size_t bytes = static_cast<std::size_t>(comm.size()) * kPart;
    SymmetricMemory memory = comm.alloc(bytes);
    EXPECT_EQ(bytes, memory.bytes());
    EXPECT_EQ(memory.local(), memory.address(comm.rank()));
    ASSERT_TRUE(read(driver, memory.local(), memory.bytes()) == Bytes(memory.bytes()));
    gather(comm, 0);
    // Each writes its own part of every rank's.
    const auto part = [&](int from, int to) {
      return random_bytes(kPart, static_cast<std::uint64_t>(16 * from + to));
    };
    for (int to = 0; to < comm.size(); ++to)
      write(driver, memory.address(to) + static_cast<std::size_t>(comm.rank()) * kPart,
            part(comm.rank(), to));
    gather(comm, 1);
    for (int from = 0; from < comm.size(); ++from)
      ASSERT_TRUE(read(driver, memory.local() + static_cast<std::size_t>(from) * kPart, kPart) ==
                  part(from, comm.rank()));
    comm.free(std::move(memory));
    EXPECT_FALSE(memory);
  });
}

TEST(Threads, NothingIsLeft) {
  NEEDS_GPUS(2);
  if (!group_node().simulated) GTEST_SKIP() << "the simulated driver counts what is left";
  const CudaDriver& driver = *group_node().driver;
  Group keeps_contexts(gpus_up_to(4));
  const LiveObjects before = live_objects(driver);
  {
    Group group(gpus_up_to(4));
    group.run([](Communicator& comm) {
      SymmetricMemory first = comm.alloc(100);
      SymmetricMemory second = comm.alloc(200);
      comm.free(std::move(first));
    });
  }
  EXPECT_EQ(before, live_objects(driver));
}

TEST(Threads, SingleThread_DestroysAllRanks) {
  NEEDS_GPUS(2);
  Group group(gpus_up_to(4));
  std::vector<SymmetricMemory> memories(static_cast<std::size_t>(group.size()));
  group.run([&](Communicator& comm) {
    memories[static_cast<std::size_t>(comm.rank())] = comm.alloc(64);
  });
  for (const int rank : {2, 0, 3}) {
    if (rank >= group.size()) continue;
    group.destroy(rank);
    // It is still there for ranks that have not left.
    const CurrentContext current(group[1].driver(), group[1].context());
    EXPECT_EQ(Bytes(64), read(group[1].driver(), memories[1].address(rank), 64));
  }
}

/// A rank that has left may go on to a kernel that waits for the rank which leaves last.
TEST(Threads, LastRank_WaitsForNoKernelOfAnother) {
  NEEDS_GPUS(2);
  Group keeps_contexts(2);
  const CudaDriver& driver = *group_node().driver;
  const LiveObjects before = group_node().simulated ? live_objects(driver) : LiveObjects{};
  {
    Group group(2);
    const CUcontext context = group[0].context();
    CUstream stream = nullptr;
    {
      const CurrentContext current(driver, context);
      POLYPATH_CHECK(driver, stream_create(&stream, CU_STREAM_NON_BLOCKING));
    }
    {
      Gate gate(driver, context);
      group.run([](Communicator& comm) { static_cast<void>(comm.alloc(64)); });
      group.destroy(0);
      gate.hold(stream, context);
      group.destroy(1);
    }
    const CurrentContext current(driver, context);
    POLYPATH_CHECK(driver, stream_destroy(stream));
  }
  if (group_node().simulated) {
    EXPECT_EQ(before, live_objects(driver));
  }
}

TEST(Threads, SplitByColorAndKey) {
  NEEDS_GPUS(4);
  Group group(4);
  group.run([](Communicator& comm) {
    // 3, 1 in one; 2 alone; 0 in none.
    const int color = comm.rank() == 0 ? -1 : comm.rank() % 2;
    const auto part = comm.split(color, -comm.rank());
    if (comm.rank() == 0) {
      EXPECT_EQ(nullptr, part);
    } else if (comm.rank() == 2) {
      EXPECT_EQ(1, part->size());
      EXPECT_EQ(comm.gpu(), part->gpu());
    } else {
      ASSERT_EQ(2, part->size());
      EXPECT_EQ(comm.rank() == 3 ? 0 : 1, part->rank());
      EXPECT_EQ(3, part->gpu_of(0));
      EXPECT_EQ(1, part->gpu_of(1));
      EXPECT_EQ((std::vector<std::uint64_t>{103, 101}),
                gather(*part, 100U + static_cast<std::uint64_t>(comm.rank())));
      // An abort is that communicator's alone.
      part->abort("for a test");
      EXPECT_THROW(part->check(), CommunicatorError);
    }
    EXPECT_NO_THROW(comm.check());
    EXPECT_EQ(4U, gather(comm, 0).size());
  });
}

TEST(Threads, ManyCommunicatorsAtOnce) {
  NEEDS_GPUS(2);
  Group group(gpus_up_to(4));
  group.run([](Communicator& comm) {
    std::vector<std::unique_ptr<Communicator>> all;
    for (int i = 0; i < 20; ++i) all.push_back(comm.split(0, comm.rank()));
    for (std::uint64_t i = 0; i < 100; ++i) {
      const auto sum = gather(*all[i * 7 % 20], i);
      EXPECT_EQ(sum.size() * i, std::accumulate(sum.begin(), sum.end(), std::uint64_t{0}));
    }
  });
}

TEST(Threads, DifferentCallsAreToldApart) {
  NEEDS_GPUS(2);
  const int last = gpus_up_to(3) - 1;
  Group group(last + 1);
  const auto failures = group.failures([&](Communicator& comm) {
    if (comm.rank() == last) {
      comm.alloc(100);
    } else {
      gather(comm, 1);
    }
  });
  EXPECT_THAT(failures,
              Each(AllOf(HasSubstr("rank 0 calls exchange(8 bytes)"),
                         HasSubstr(fmt::format("rank {} calls alloc(100 bytes)", last)))));
}

TEST(Threads, DifferentSizesAreToldApart) {
  NEEDS_GPUS(2);
  Group group(2);
  const auto failures =
      group.failures([](Communicator& comm) { comm.alloc(comm.rank() == 0 ? 100 : 200); });
  EXPECT_THAT(failures, Each(AllOf(HasSubstr("alloc(100 bytes)"), HasSubstr("alloc(200 bytes)"))));
}

TEST(Threads, AbortEndsWaitsAndLaterCalls) {
  NEEDS_GPUS(2);
  Group group(gpus_up_to(3));
  std::atomic<int> waiting{0};
  const auto failures = group.failures([&](Communicator& comm) {
    if (comm.rank() == 1) {
      while (waiting < comm.size() - 1) std::this_thread::yield();
      comm.abort("rank 1 has had enough");
      comm.check();
    } else {
      ++waiting;
      gather(comm, 1);
    }
  });
  EXPECT_THAT(failures, Each(HasSubstr("rank 1 has had enough")));
  const auto later = group.failures([](Communicator& comm) {
    EXPECT_TRUE(comm.aborted());
    // For kernels; the watchdog of each rank sets it.
    const std::atomic_ref word(*const_cast<std::uint32_t*>(comm.wait_ctx().abort_flag));
    while (word.load(std::memory_order_acquire) == 0) std::this_thread::yield();
    comm.abort("another reason, which is not kept");
    comm.alloc(100);
  });
  EXPECT_THAT(later, Each(HasSubstr("rank 1 has had enough")));
}

TEST(Threads, AbsentRank_IsNamed) {
  NEEDS_GPUS(2);
  Group group(2);
  group[0].set_time_limit(std::chrono::milliseconds(100));
  const auto failures = group.failures([](Communicator& comm) {
    if (comm.rank() == 0) gather(comm, 1);
  });
  EXPECT_THAT(failures[0],
              HasSubstr("rank 1 did not come to exchange(8 bytes) within 100 ms: rank 0 waited"));
  EXPECT_THROW(group[1].check(), CommunicatorError);
}

TEST(Threads, DepartedRank_IsNamed) {
  NEEDS_GPUS(2);
  const int last = gpus_up_to(3) - 1;
  Group group(last + 1);
  group.destroy(last);
  const auto failures = failures_on_threads(last, [&](int rank) { gather(group[rank], 1); });
  EXPECT_THAT(failures, Each(HasSubstr(fmt::format("rank {} destroyed the communicator", last))));
}

TEST(Threads, KernelTimeout_AbortsAllRanks) {
  NEEDS_GPUS(2);
  Group group(2);
  const auto failures = group.failures([](Communicator& comm) {
    if (comm.rank() == 1) {
      wait_error& status = *comm.wait_ctx().status;
      status.kernel = 7;
      status.waited_for_rank = 0;
      status.reason = wait_error::time_limit;
      status.expected = 12;
      status.seen = 11;
      std::atomic_ref(status.given_up).store(1, std::memory_order_release);
    }
    while (true) gather(comm, 1);
  });
  EXPECT_THAT(failures, Each(HasSubstr("rank 1: kernel 7 waited for rank 0 past the time limit "
                                       "(expected 12, saw 11)")));
}

std::atomic<int> frees{0};
CUresult (*plain_free)(CUdeviceptr) = nullptr;
CUresult counted_free(CUdeviceptr address) {
  ++frees;
  return plain_free(address);
}

/// Another rank may have come to the end of the call just before, and use the memory.
TEST(Threads, FailedAlloc_KeepsItsMemoryUntilAllLeave) {
  NEEDS_GPUS(2);
  const auto driver = std::make_shared<CudaDriver>(*group_node().driver);
  plain_free = std::exchange(driver->mem_free, &counted_free);
  Group group(2, {.driver = driver});
  group[0].set_time_limit(std::chrono::milliseconds(1));
  frees = 0;
  EXPECT_THROW(group[0].alloc(100), CommunicatorError);
  group.destroy(0);
  EXPECT_EQ(0, frees);
  group.destroy(1);
  wait_for_late_releases();
  EXPECT_EQ(3, frees);  // that of barriers on either rank, too
}

std::atomic<bool> has_gpu_failed{false};
CUresult (*plain_query)(CUstream) = nullptr;
CUresult failing_query(CUstream stream) {
  return has_gpu_failed ? CUDA_ERROR_LAUNCH_FAILED : plain_query(stream);
}

/// Its kernels have ended, and those of others may wait for them.
TEST(Threads, LeavingWithAFailedGpu_Aborts) {
  NEEDS_GPUS(2);
  const auto driver = std::make_shared<CudaDriver>(*group_node().driver);
  plain_query = std::exchange(driver->stream_query, &failing_query);
  Group group(2, {.driver = driver});
  has_gpu_failed = true;
  group.destroy(0);
  has_gpu_failed = false;
  try {
    group[1].check();
    FAIL() << "nothing is said";
  } catch (const CommunicatorError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("rank 0: work of its GPU has failed: CUDA_ERROR_LAUNCH_FAILED"));
  }
}

}  // namespace
}  // namespace polypath::test
