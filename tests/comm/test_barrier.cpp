// What a barrier asks of the driver.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>

#include "driver/check.hpp"
#include "group.hpp"
#include "tune/resources.hpp"

namespace polypath::test {
namespace {

std::atomic<int> stream_writes{0};
std::atomic<int> launches{0};

TEST(Barrier, OfFourRanks_IsOneKernel) {
  NEEDS_GPUS(4);
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
  Group group(4, {.driver = counting});
  stream_writes = launches = 0;
  group.run([](Communicator& comm) {
    const Stream stream(comm.driver(), comm.context());
    for (int i = 0; i < 5; ++i) comm.barrier(stream.get());
    POLYPATH_CHECK(comm.driver(), stream_synchronize(stream.get()));
    comm.check();
    comm.exchange({}, {});
  });
  EXPECT_EQ(stream_writes, 0);
  EXPECT_EQ(launches, 4 * 5);
}

}  // namespace
}  // namespace polypath::test
