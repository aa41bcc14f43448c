// Random programs of copies, fills and events on several streams end as the same steps do one after
// another. Streams are ordered by events alone, and only where two steps touch the same buffer.
#include <cstdlib>
#include <memory>
#include <random>

#include "fixture.hpp"

namespace polypath::sim::test {
namespace {

constexpr std::size_t kBytes = 40 * kKiB + 13;
constexpr int kGpus = 3;

class RandomPrograms : public SimTest {
 protected:
  struct Buffer {
    CUdeviceptr address = 0;
    int gpu = 0;
    bool is_host = false;
    std::vector<std::uint8_t> expected;
    CUevent written = nullptr;
    std::vector<CUevent> read;  // since it was written
  };
  struct Range {
    std::size_t begin;
    std::size_t bytes;
  };

  void SetUp() override {
    SimTest::SetUp();
    for (const auto& [from, to] : {std::pair{0, 1}, {0, 2}, {1, 0}, {2, 0}}) enable_peer(from, to);
    for (int i = 0; i < 2 * kGpus; ++i) {
      streams.push_back(create_stream(i % kGpus));
      add_buffer(i % kGpus, false);
    }
    add_buffer(0, true);
    add_buffer(1, true);
  }

  void add_buffer(int gpu, bool is_host) {
    use(gpu);
    Buffer& added = buffers.emplace_back();
    added.gpu = gpu;
    added.is_host = is_host;
    added.address = is_host ? device(allocate_host(kBytes)) : allocate(gpu, kBytes);
    added.expected = pattern(kBytes, static_cast<std::uint8_t>(buffers.size()));
    use(gpu);
    write(added.address, added.expected);
    use(0);
  }

  Range random_range() {
    const std::size_t begin = random() % kBytes;
    return {begin, 1 + random() % (kBytes - begin)};
  }

  /// Makes the stream wait for all that touched the buffer before; for readers only `to_write` it.
  void follow(std::size_t stream, const Buffer& buffer, bool to_write) {
    const auto wait = [&](CUevent event) {
      EXPECT_CUDA(CUDA_SUCCESS, cuStreamWaitEvent(streams[stream], event, 0));
    };
    if (buffer.written != nullptr) wait(buffer.written);
    if (to_write)
      for (const CUevent event : buffer.read) wait(event);
  }

  CUevent recorded(std::size_t stream) {
    const CUevent event = create_event(static_cast<int>(stream) % kGpus, CU_EVENT_DISABLE_TIMING);
    use(static_cast<int>(stream) % kGpus);
    EXPECT_CUDA(CUDA_SUCCESS, cuEventRecord(event, streams[stream]));
    use(0);
    return event;
  }

  void written(Buffer& buffer, CUevent event) {
    buffer.written = event;
    buffer.read.clear();
  }

  void add_fill() {
    Buffer& buffer = buffers[random() % (2 * kGpus)];
    const auto stream = static_cast<std::size_t>(buffer.gpu) + (random() % 2 == 0 ? 0U : 3U);
    const auto [begin, bytes] = random_range();
    const auto value = static_cast<std::uint8_t>(random());
    follow(stream, buffer, true);
    EXPECT_CUDA(CUDA_SUCCESS,
                cuMemsetD8Async(buffer.address + begin, value, bytes, streams[stream]));
    std::fill_n(buffer.expected.begin() + static_cast<std::ptrdiff_t>(begin), bytes, value);
    written(buffer, recorded(stream));
  }

  void add_copy() {
    Buffer& from = buffers[random() % buffers.size()];
    Buffer& to = buffers[random() % buffers.size()];
    if (&from == &to) return;
    const std::size_t stream = random() % streams.size();
    const auto [begin, bytes] = random_range();
    const std::size_t at = random() % (kBytes - bytes + 1);
    follow(stream, from, false);
    follow(stream, to, true);
    EXPECT_CUDA(CUDA_SUCCESS,
                cuMemcpyAsync(to.address + at, from.address + begin, bytes, streams[stream]));
    std::copy_n(from.expected.begin() + static_cast<std::ptrdiff_t>(begin), bytes,
                to.expected.begin() + static_cast<std::ptrdiff_t>(at));
    const CUevent end = recorded(stream);
    from.read.push_back(end);
    written(to, end);
  }

  void run(int steps) {
    for (int step = 0; step < steps; ++step) random() % 4 == 0 ? add_fill() : add_copy();
    for (const CUstream stream : streams) EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(stream));
  }

  std::mt19937_64 random{20261122};
  std::vector<CUstream> streams;
  std::vector<Buffer> buffers;
};

TEST_F(RandomPrograms, EndAsInSequence) {
  for (int program = 0; program < 8; ++program) {
    run(150);
    for (std::size_t i = 0; i < buffers.size(); ++i)
      ASSERT_TRUE(buffers[i].expected == peek(buffers[i].address, kBytes))
          << "buffer " << i << ", program " << program;
  }
  // GPU 1 and 2 have no link, and no access to each other; all other copies go directly.
  EXPECT_GT(polypath_sim_copies(), 800U);
  EXPECT_GT(polypath_sim_link_bytes("gpu0", "gpu1"), 0U);
  EXPECT_LT(polypath_sim_bounced_copies(), polypath_sim_copies() / 2);
}

}  // namespace
}  // namespace polypath::sim::test
