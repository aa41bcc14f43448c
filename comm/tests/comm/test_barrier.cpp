// What a barrier asks of the driver, and barriers in graphs.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>

#include "driver/check.hpp"
#include "driver/resources.hpp"
#include "group.hpp"
#include "memory.hpp"

namespace polypath::test {
namespace {

std::atomic<int> stream_writes{0};
std::atomic<int> launches{0};

TEST(Barrier, EachRank_LaunchesOneKernel) {
  NEEDS_GPUS(2);
  const auto counting = std::make_shared<CudaDriver>(*group_node().driver);
  static const CudaDriver& real = *group_node().driver;
  counting->stream_write_value64 = [](CUstream stream, CUdeviceptr word, cuuint64_t value,
                                      unsigned flags) {
    ++stream_writes;
    return real.stream_write_value64(stream, word, value, flags);
  };
  counting->launch_kernel = [](CUfunction kernel, unsigned x, unsigned y, unsigned z,
                               unsigned threads_x, unsigned threads_y, unsigned threads_z,
                               unsigned shared, CUstream stream, void** parameters, void** extra) {
    ++launches;
    return real.launch_kernel(kernel, x, y, z, threads_x, threads_y, threads_z, shared, stream,
                              parameters, extra);
  };
  Group group(gpus_up_to(4), {.driver = counting});
  stream_writes = launches = 0;
  group.run([](Communicator& comm) {
    const Stream stream(comm.driver(), comm.context());
    for (int i = 0; i < 5; ++i) comm.barrier(stream.get());
    POLYPATH_CHECK(comm.driver(), stream_synchronize(stream.get()));
    comm.check();
    comm.exchange({}, {});
  });
  EXPECT_EQ(stream_writes, 0);
  EXPECT_EQ(launches, group.size() * 5);
}

/// A graph of what is captured on the stream.
class Graph {
 public:
  template <typename Record>
  Graph(const CudaDriver& driver, CUstream stream, Record&& record) : driver_(driver) {
    POLYPATH_CHECK(driver, stream_begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    record();
    POLYPATH_CHECK(driver, stream_end_capture(stream, &graph_));
    POLYPATH_CHECK(driver, graph_instantiate(&exec_, graph_, 0));
  }
  ~Graph() {
    POLYPATH_WARN(driver_, graph_exec_destroy(exec_));
    POLYPATH_WARN(driver_, graph_destroy(graph_));
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void launch(CUstream stream) const { POLYPATH_CHECK(driver_, graph_launch(exec_, stream)); }

 private:
  const CudaDriver& driver_;
  CUgraph graph_ = nullptr;
  CUgraphExec exec_ = nullptr;
};

constexpr std::size_t kSentBytes = 4096;
Bytes sent_by(int rank, std::uint64_t round) {
  return random_bytes(kSentBytes, 100 * static_cast<std::uint64_t>(rank) + round);
}

/// Rank 0 comes first in each round, by a graph of two barriers; the others come by graphs and by
/// calls in turn.
TEST(Barrier, Captured_WaitsAtEachLaunch) {
  NEEDS_GPUS(2);
  Group group(gpus_up_to(3));
  group.run([](Communicator& comm) {
    const int ranks = comm.size();
    const auto inbox_bytes = static_cast<std::size_t>(ranks) * kSentBytes;
    const CudaDriver& driver = comm.driver();
    const Stream stream(driver, comm.context());
    const SymmetricMemory inbox = comm.alloc(inbox_bytes);
    const Device out(driver, Bytes(kSentBytes));
    const auto two_barriers = [&] {
      comm.barrier(stream.get());
      comm.barrier(stream.get());
    };
    const Graph graph(driver, stream.get(), two_barriers);
    for (std::uint64_t round = 1; round <= 6; ++round) {
      write(driver, out.get(), sent_by(comm.rank(), round));
      write(driver, inbox.local(), Bytes(inbox_bytes, std::byte{0xEE}));
      comm.exchange({}, {});
      const auto come = [&] {
        for (int to = 0; to < ranks; ++to)
          comm.put(
              {to, inbox, kSentBytes * static_cast<unsigned>(comm.rank()), out.get(), kSentBytes},
              stream.get());
        if ((static_cast<std::uint64_t>(comm.rank()) + round) % 2 == 0 || comm.rank() == 0)
          graph.launch(stream.get());
        else
          two_barriers();
      };
      if (comm.rank() == 0) {
        come();
        EXPECT_EQ(driver.stream_query(stream.get()), CUDA_ERROR_NOT_READY);
      }
      comm.exchange({}, {});
      if (comm.rank() != 0) come();
      POLYPATH_CHECK(driver, stream_synchronize(stream.get()));
      for (int from = 0; from < ranks; ++from)
        EXPECT_TRUE(read(driver, inbox.local() + kSentBytes * static_cast<unsigned>(from),
                         kSentBytes) == sent_by(from, round))
            << "from rank " << from << ", round " << round;
      comm.check();
    }
    comm.exchange({}, {});
  });
}

}  // namespace
}  // namespace polypath::test
