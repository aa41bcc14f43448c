// Timing of pairs on a node: the times follow the bytes, and the streams of a group run at once.
#include <array>
#include <vector>

#include "base/units.hpp"
#include "lab/pairs.hpp"
#include "node_fixture.hpp"
#include "tune/test_buffer.hpp"

namespace polypath {
namespace {

using PairsNodeTest = test::NodeTest;

constexpr std::uint64_t kPairBytes = 64 * kMiB;

/// Copies to host memory from GPU 0, and into it from there.
class Copies {
 public:
  Copies(const CudaDriver& driver, const Node& node)
      : driver_(driver),
        host_(driver, node, MemoryId::host(node.gpus.front().numa), kPairBytes),
        gpu_(driver, node, MemoryId::gpu(0), kPairBytes),
        first_(driver, gpu_.context()),
        second_(driver, gpu_.context()) {}

  [[nodiscard]] std::array<CUstream, 2> streams() const { return {first_.get(), second_.get()}; }
  void to_host(std::size_t stream, std::uint64_t offset, std::uint64_t bytes) {
    copy(host_.address() + offset, gpu_.address() + offset, bytes, streams()[stream]);
  }

 private:
  void copy(CUdeviceptr dst, CUdeviceptr src, std::uint64_t bytes, CUstream stream) {
    const CurrentContext current(driver_, gpu_.context());
    POLYPATH_CHECK(driver_, memcpy_async(dst, src, bytes, stream));
  }

  const CudaDriver& driver_;
  TestBuffer host_;
  TestBuffer gpu_;
  Stream first_;
  Stream second_;
};

TEST_F(PairsNodeTest, HalfTheBytesTakeAboutHalfTheTime) {
  Copies copies(*driver_, discovered_);
  const auto streams = copies.streams();
  const PairSamples samples = measure_pairs(
      *driver_, std::span(streams).first(1), [&] { copies.to_host(0, 0, kPairBytes); },
      [&] { copies.to_host(0, 0, kPairBytes / 2); }, {.warmup = 1, .iterations = 3});
  const double ratio = samples.native.median_device_us() / samples.polypath.median_device_us();
  EXPECT_GT(ratio, 1.8);
  EXPECT_LT(ratio, 2.2);
  if (simulated_) {
    const int link = *file_.find_link(MemoryId::gpu(0), MemoryId::host(file_.gpus[0].numa));
    const double us = file_.costs.copy_start_us +
                      transfer_us(kPairBytes, file_.links[static_cast<std::size_t>(link)].gbps);
    EXPECT_NEAR(samples.native.median_device_us(), us, 0.01 * us);
  }
}

TEST_F(PairsNodeTest, WorkOfEveryStreamOfAGroupIsInItsTime) {
  Copies copies(*driver_, discovered_);
  const auto streams = copies.streams();
  const PairSamples samples = measure_pairs(
      *driver_, streams, [&] { copies.to_host(0, 0, kPairBytes); },
      [&] { copies.to_host(1, 0, kPairBytes); }, {.warmup = 1, .iterations = 3});
  EXPECT_NEAR(samples.polypath.median_device_us(), samples.native.median_device_us(),
              0.1 * samples.native.median_device_us());
}

}  // namespace
}  // namespace polypath
