// Communicators of threads whose GPUs cannot address each other's memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "base/units.hpp"
#include "core/context.hpp"
#include "core/pointer_info.hpp"
#include "group.hpp"
#include "memory.hpp"

namespace polypath::test {
namespace {

TEST(HostWords, SmallMemoryLiesInHostMemoryLargeOnTheGpu) {
  NEEDS_GPUS(2);
  Group group(2);
  group.run([](Communicator& comm) {
    EXPECT_FALSE(comm.has_peer_access());
    const SymmetricMemory words = comm.alloc(kMaxHostWords);
    const SymmetricMemory data = comm.alloc(kMaxHostWords + 1);
    EXPECT_TRUE(words.is_shared());
    EXPECT_FALSE(data.is_shared());
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(inspect(comm.driver(), words.address(rank)).kind, PointerInfo::Kind::pinned);
      EXPECT_EQ(inspect(comm.driver(), data.address(rank)).gpu, comm.gpu_of(rank));
    }
  });
}

TEST(HostWords, SignalsInGpuMemory_AreRefused) {
  NEEDS_GPUS(2);
  Group group(2);
  group.run([](Communicator& comm) {
    const SymmetricMemory data = comm.alloc(kMaxHostWords + 8);
    const Stream stream(comm.driver(), comm.context());
    EXPECT_THROW(comm.signal(0, {data, 0, 1}, stream.get()), NotSupported);
    EXPECT_THROW(comm.wait_signal({data, 0, 1}, stream.get()), NotSupported);
    comm.check();
  });
}

/// Copies of the driver, or of the engine's routes through host memory; never stores of a kernel.
void put_around(Group& group, std::size_t bytes) {
  group.run([&](Communicator& comm) {
    const CudaDriver& driver = comm.driver();
    const SymmetricMemory inbox = comm.alloc(bytes);
    const SymmetricMemory words = comm.alloc(64);
    write(driver, inbox.local(), Bytes(bytes, std::byte{0xEE}));
    comm.exchange({}, {});
    const Stream stream(driver, comm.context());
    const int to = (comm.rank() + 1) % comm.size();
    const int from = (comm.rank() + comm.size() - 1) % comm.size();
    for (std::uint64_t round = 1; round <= 3; ++round) {
      const auto contents = [&](int rank) {
        return random_bytes(bytes, 100 * round + static_cast<std::uint64_t>(rank));
      };
      const Device source(driver, contents(comm.rank()));
      comm.put({to, inbox, 0, source.get(), bytes}, {words, 8, round}, stream.get());
      comm.wait_signal({words, 8, round}, stream.get());
      POLYPATH_CHECK(driver, stream_synchronize(stream.get()));
      comm.check();
      EXPECT_TRUE(is_same(contents(from), read(driver, inbox.local(), bytes))) << "round " << round;
      comm.exchange({}, {});
    }
    EXPECT_EQ(0u, comm.put_counts().by_kernel);
    EXPECT_EQ(3u, comm.put_counts().by_copies);
  });
}

TEST(HostWords, PutsBetweenThreads_AreCopies) {
  NEEDS_GPUS(2);
  Group group(gpus_up_to(4));
  put_around(group, 100'003);
}

TEST(HostWords, LargePutsByTheEngine_TakeItsRoutes) {
  NEEDS_GPUS(2);
  Context engine(group_node(), {{"prepare", "wait"}});
  Group group(2, {.engine = &engine});
  put_around(group, 16 * kMiB + 5);
}

}  // namespace
}  // namespace polypath::test
