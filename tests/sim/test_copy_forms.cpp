// Every form of a copy: the bytes it moves, the stream it is on, and whether it is waited for.
#include <functional>

#include "driver_forms.hpp"
#include "fixture.hpp"

namespace polypath::sim::test {
namespace {

constexpr std::size_t kSize = 2 * kMiB + 17;

enum class Waits : bool { no, yes };

class CopyForms : public SimTest {
 protected:
  void SetUp() override {
    SimTest::SetUp();
    enable_peer(0, 1);
    far = allocate(0, kSize);
    near = allocate(1, kSize);
    host = allocate_host(kSize);
  }

  /// Fills both device memories and the host memory with other bytes each time.
  void fill() {
    ++seed;
    write(far, pattern(kSize, seed));
    write(near, std::vector<std::uint8_t>(kSize, 0xEE));
    std::ranges::copy(pattern(kSize, static_cast<std::uint8_t>(seed + 100)), host);
    EXPECT_CUDA(CUDA_SUCCESS, cuCtxSynchronize());
  }
  [[nodiscard]] std::vector<std::uint8_t> bytes_of(const void* memory) const {
    const auto* const at = static_cast<const std::uint8_t*>(memory);
    return {at, at + kSize};
  }

  /// `copy` is on the stream, and moves `from` to `to`.
  void check(const char* name, const std::function<CUresult()>& copy, CUstream on, Waits waits,
             const std::function<std::vector<std::uint8_t>()>& from,
             const std::function<std::vector<std::uint8_t>()>& to) {
    SCOPED_TRACE(name);
    fill();
    const auto expected = from();
    ASSERT_NE(expected, to());
    EXPECT_CUDA(CUDA_SUCCESS, copy());
    EXPECT_CUDA(waits == Waits::yes ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY, cuStreamQuery(on));
    EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(on));
    EXPECT_EQ(expected, to());
  }

  CUdeviceptr far = 0;
  CUdeviceptr near = 0;
  std::uint8_t* host = nullptr;
  std::uint8_t seed = 0;
};

// The other default stream is idle all the while: a copy on it would not be NOT_READY here.
TEST_F(CopyForms, MoveTheirBytesOnTheirStream) {
  const auto at_far = [&] { return peek(far, kSize); };
  const auto at_near = [&] { return peek(near, kSize); };
  const auto at_host = [&] { return bytes_of(host); };
  const CUstream own = create_stream(0);
  for (const CUstream given : {CUstream{nullptr}, own}) {
    const CUstream legacy = given == nullptr ? CU_STREAM_LEGACY : given;
    const CUstream thread = given == nullptr ? CU_STREAM_PER_THREAD : given;
    const auto far_to_near = [&](const char* name, auto* form, CUstream on) {
      check(name, [&] { return form(near, far, kSize, given); }, on, Waits::no, at_far, at_near);
    };
    far_to_near("cuMemcpyAsync", &cuMemcpyAsync, legacy);
    far_to_near("cuMemcpyAsync_ptsz", &cuMemcpyAsync_ptsz, thread);
    far_to_near("cuMemcpyDtoDAsync_v2", &cuMemcpyDtoDAsync_v2, legacy);
    far_to_near("cuMemcpyDtoDAsync_v2_ptsz", &cuMemcpyDtoDAsync_v2_ptsz, thread);
    const auto to_device = [&](const char* name, auto* form, CUstream on) {
      check(name, [&] { return form(near, host, kSize, given); }, on, Waits::no, at_host, at_near);
    };
    to_device("cuMemcpyHtoDAsync_v2", &cuMemcpyHtoDAsync_v2, legacy);
    to_device("cuMemcpyHtoDAsync_v2_ptsz", &cuMemcpyHtoDAsync_v2_ptsz, thread);
    const auto to_host = [&](const char* name, auto* form, CUstream on) {
      check(name, [&] { return form(host, far, kSize, given); }, on, Waits::no, at_far, at_host);
    };
    to_host("cuMemcpyDtoHAsync_v2", &cuMemcpyDtoHAsync_v2, legacy);
    to_host("cuMemcpyDtoHAsync_v2_ptsz", &cuMemcpyDtoHAsync_v2_ptsz, thread);
    const auto to_peer = [&](const char* name, auto* form, CUstream on) {
      check(
          name, [&] { return form(near, context(1), far, context(0), kSize, given); }, on,
          Waits::no, at_far, at_near);
    };
    to_peer("cuMemcpyPeerAsync", &cuMemcpyPeerAsync, legacy);
    to_peer("cuMemcpyPeerAsync_ptsz", &cuMemcpyPeerAsync_ptsz, thread);
  }
}

TEST_F(CopyForms, WithoutAStreamWaitForHostMemoryOnly) {
  const auto at_far = [&] { return peek(far, kSize); };
  const auto at_near = [&] { return peek(near, kSize); };
  const auto at_host = [&] { return bytes_of(host); };
  const auto check_all = [&](CUstream on, auto* any, auto* within, auto* to_device, auto* to_host,
                             auto* peer) {
    check("any", [&] { return any(near, far, kSize); }, on, Waits::no, at_far, at_near);
    check(
        "any to host", [&] { return any(device(host), far, kSize); }, on, Waits::yes, at_far,
        at_host);
    check("DtoD", [&] { return within(near, far, kSize); }, on, Waits::no, at_far, at_near);
    check("HtoD", [&] { return to_device(near, host, kSize); }, on, Waits::yes, at_host, at_near);
    check("DtoH", [&] { return to_host(host, far, kSize); }, on, Waits::yes, at_far, at_host);
    check(
        "Peer", [&] { return peer(near, context(1), far, context(0), kSize); }, on, Waits::no,
        at_far, at_near);
  };
  check_all(CU_STREAM_LEGACY, &cuMemcpy, &cuMemcpyDtoD_v2, &cuMemcpyHtoD_v2, &cuMemcpyDtoH_v2,
            &cuMemcpyPeer);
  check_all(CU_STREAM_PER_THREAD, &cuMemcpy_ptds, &cuMemcpyDtoD_v2_ptds, &cuMemcpyHtoD_v2_ptds,
            &cuMemcpyDtoH_v2_ptds, &cuMemcpyPeer_ptds);
}

}  // namespace
}  // namespace polypath::sim::test
