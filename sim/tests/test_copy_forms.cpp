// Every form of a copy: the bytes it moves, the stream it is on, and whether it is waited for.
#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>

#include "driver_forms.hpp"
#include "fixture.hpp"

namespace polypath::sim::test {
namespace {

constexpr std::size_t kFormSize = 2 * kMiB + 17;

enum class Waits : bool { no, yes };

class CopyForms : public SimTest {
 protected:
  void SetUp() override {
    SimTest::SetUp();
    enable_peer(0, 1);
    far = allocate(0, kFormSize);
    near = allocate(1, kFormSize);
    host = allocate_host(kFormSize);
  }

  /// Fills both device memories and the host memory with other bytes each time.
  void fill() {
    ++seed;
    write(far, pattern(kFormSize, seed));
    write(near, std::vector<std::uint8_t>(kFormSize, 0xEE));
    std::ranges::copy(pattern(kFormSize, static_cast<std::uint8_t>(seed + 100)), host);
    EXPECT_CUDA(CUDA_SUCCESS, cuCtxSynchronize());
  }
  [[nodiscard]] std::vector<std::uint8_t> bytes_of(const void* memory) const {
    const auto* const at = static_cast<const std::uint8_t*>(memory);
    return {at, at + kFormSize};
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
  const auto at_far = [&] { return peek(far, kFormSize); };
  const auto at_near = [&] { return peek(near, kFormSize); };
  const auto at_host = [&] { return bytes_of(host); };
  const CUstream own = create_stream(0);
  for (const CUstream stream : {CUstream{nullptr}, own}) {
    const CUstream legacy = stream == nullptr ? CU_STREAM_LEGACY : stream;
    const CUstream thread = stream == nullptr ? CU_STREAM_PER_THREAD : stream;
    const auto far_to_near = [&](const char* name, auto* form, CUstream on) {
      check(
          name, [&] { return form(near, far, kFormSize, stream); }, on, Waits::no, at_far, at_near);
    };
    far_to_near("cuMemcpyAsync", &cuMemcpyAsync, legacy);
    far_to_near("cuMemcpyAsync_ptsz", &cuMemcpyAsync_ptsz, thread);
    far_to_near("cuMemcpyDtoDAsync_v2", &cuMemcpyDtoDAsync_v2, legacy);
    far_to_near("cuMemcpyDtoDAsync_v2_ptsz", &cuMemcpyDtoDAsync_v2_ptsz, thread);
    const auto to_device = [&](const char* name, auto* form, CUstream on) {
      check(
          name, [&] { return form(near, host, kFormSize, stream); }, on, Waits::no, at_host,
          at_near);
    };
    to_device("cuMemcpyHtoDAsync_v2", &cuMemcpyHtoDAsync_v2, legacy);
    to_device("cuMemcpyHtoDAsync_v2_ptsz", &cuMemcpyHtoDAsync_v2_ptsz, thread);
    const auto to_host = [&](const char* name, auto* form, CUstream on) {
      check(
          name, [&] { return form(host, far, kFormSize, stream); }, on, Waits::no, at_far, at_host);
    };
    to_host("cuMemcpyDtoHAsync_v2", &cuMemcpyDtoHAsync_v2, legacy);
    to_host("cuMemcpyDtoHAsync_v2_ptsz", &cuMemcpyDtoHAsync_v2_ptsz, thread);
    const auto to_peer = [&](const char* name, auto* form, CUstream on) {
      check(
          name, [&] { return form(near, context(1), far, context(0), kFormSize, stream); }, on,
          Waits::no, at_far, at_near);
    };
    to_peer("cuMemcpyPeerAsync", &cuMemcpyPeerAsync, legacy);
    to_peer("cuMemcpyPeerAsync_ptsz", &cuMemcpyPeerAsync_ptsz, thread);
  }
}

TEST_F(CopyForms, WithoutAStreamWaitForHostMemoryOnly) {
  const auto at_far = [&] { return peek(far, kFormSize); };
  const auto at_near = [&] { return peek(near, kFormSize); };
  const auto at_host = [&] { return bytes_of(host); };
  const auto check_all = [&](CUstream on, auto* any, auto* within, auto* to_device, auto* to_host,
                             auto* peer) {
    check("any", [&] { return any(near, far, kFormSize); }, on, Waits::no, at_far, at_near);
    check(
        "any to host", [&] { return any(device(host), far, kFormSize); }, on, Waits::yes, at_far,
        at_host);
    check("DtoD", [&] { return within(near, far, kFormSize); }, on, Waits::no, at_far, at_near);
    check(
        "HtoD", [&] { return to_device(near, host, kFormSize); }, on, Waits::yes, at_host, at_near);
    check("DtoH", [&] { return to_host(host, far, kFormSize); }, on, Waits::yes, at_far, at_host);
    check(
        "Peer", [&] { return peer(near, context(1), far, context(0), kFormSize); }, on, Waits::no,
        at_far, at_near);
  };
  check_all(CU_STREAM_LEGACY, &cuMemcpy, &cuMemcpyDtoD_v2, &cuMemcpyHtoD_v2, &cuMemcpyDtoH_v2,
            &cuMemcpyPeer);
  check_all(CU_STREAM_PER_THREAD, &cuMemcpy_ptds, &cuMemcpyDtoD_v2_ptds, &cuMemcpyHtoD_v2_ptds,
            &cuMemcpyDtoH_v2_ptds, &cuMemcpyPeer_ptds);
}

/// Synchronous copies between GPUs: whether the bytes are there when the call returns.
class SyncMemops : public SimTest {
 protected:
  void SetUp() override {
    SimTest::SetUp();
    enable_peer(0, 1);
    src = allocate(0, values.size());
    dst = allocate(1, values.size());
    write(src, values);
    word = reinterpret_cast<std::atomic<std::uint32_t>*>(allocate_host(4096));
    word->store(0);
  }

  void ask(CUdeviceptr address, unsigned value) {
    EXPECT_CUDA(CUDA_SUCCESS,
                cuPointerSetAttribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address));
    unsigned attribute = 7;
    EXPECT_CUDA(CUDA_SUCCESS,
                cuPointerGetAttribute(&attribute, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address + 1));
    EXPECT_EQ(value, attribute);
  }

  /// The call, on a default stream that is held until another thread releases it.
  void expect_waits(bool waits, const std::function<CUresult()>& copy) {
    word->store(0);
    ASSERT_CUDA(cuMemsetD8Async(dst, 0, values.size(), nullptr));
    ASSERT_CUDA(cuStreamWaitValue32(nullptr, device(word), 1, CU_STREAM_WAIT_VALUE_EQ));
    std::thread other;
    if (waits) other = std::thread([this] { word->store(1); });
    EXPECT_CUDA(CUDA_SUCCESS, copy());
    if (waits) {
      EXPECT_TRUE(values == peek(dst, values.size()));
      other.join();
      return;
    }
    EXPECT_CUDA(CUDA_ERROR_NOT_READY, cuStreamQuery(nullptr));
    word->store(1);
    EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(nullptr));
    EXPECT_TRUE(values == peek(dst, values.size()));
  }

  const std::vector<std::uint8_t> values = pattern(3 * kMiB + 5, 11);
  CUdeviceptr src = 0;
  CUdeviceptr dst = 0;
  std::atomic<std::uint32_t>* word = nullptr;
};

TEST_F(SyncMemops, Unset_CopiesDoNotWait) {
  expect_waits(false, [&] { return cuMemcpyDtoD(dst, src, values.size()); });
  expect_waits(false, [&] { return cuMemcpy(dst, src, values.size()); });
  expect_waits(false,
               [&] { return cuMemcpyPeer(dst, context(1), src, context(0), values.size()); });
}

TEST_F(SyncMemops, EitherSideMayAsk) {
  for (const CUdeviceptr side : {src, dst}) {
    ask(side, 1);
    expect_waits(true, [&] { return cuMemcpyDtoD(dst, src, values.size()); });
    expect_waits(true, [&] { return cuMemcpy(dst, src, values.size()); });
    expect_waits(true,
                 [&] { return cuMemcpyPeer(dst, context(1), src, context(0), values.size()); });
    ask(side, 0);
    expect_waits(false, [&] { return cuMemcpyDtoD(dst, src, values.size()); });
  }
}

TEST_F(SyncMemops, AsyncCopy_StaysAsynchronous) {
  ask(src, 1);
  expect_waits(false, [&] { return cuMemcpyAsync(dst, src, values.size(), nullptr); });
}

TEST_F(SyncMemops, ContextFlag_MakesCopiesWait) {
  unsigned flags = 1;
  ASSERT_CUDA(cuCtxGetFlags(&flags));
  ASSERT_CUDA(cuCtxSetFlags(flags | CU_CTX_SYNC_MEMOPS));
  expect_waits(true, [&] { return cuMemcpyDtoD(dst, src, values.size()); });
  ASSERT_CUDA(cuCtxSetFlags(flags));
  expect_waits(false, [&] { return cuMemcpyDtoD(dst, src, values.size()); });
}

}  // namespace
}  // namespace polypath::sim::test
