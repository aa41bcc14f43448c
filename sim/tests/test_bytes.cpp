// Bytes really move: all of them, no others, and not before the copy completes.
#include <algorithm>
#include <array>

#include "fixture.hpp"
#include "mappings.hpp"

namespace polypath::sim::test {
namespace {

class Bytes : public SimTest {
 protected:
  void SetUp() override {
    SimTest::SetUp();
    enable_peer(0, 1);
  }
};

TEST_F(Bytes, ArriveAtCompletionAndNotEarlier) {
  constexpr std::size_t kSize = 5 * kMiB + 3;
  const CUdeviceptr src = allocate(0, kSize);
  const CUdeviceptr dst = allocate(1, kSize);
  const auto before = pattern(kSize, 1);
  const auto after = pattern(kSize, 2);
  write(dst, before);
  write(src, after);
  const CUstream stream = create_stream(0);
  EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyAsync(dst, src, kSize, stream));
  while (cuStreamQuery(stream) == CUDA_ERROR_NOT_READY) {
    if (HasFailure()) break;
    EXPECT_EQ(before, peek(dst, kSize));
    polypath_sim_advance_us(10);
  }
  EXPECT_EQ(after, peek(dst, kSize));
}

TEST_F(Bytes, LaterCopy_ReadsWrittenBytes) {
  constexpr std::size_t kSize = 3 * kMiB;
  const CUdeviceptr a = allocate(0, kSize);
  const CUdeviceptr b = allocate(1, kSize);
  std::uint8_t* const host = allocate_host(kSize);
  const auto values = pattern(kSize, 3);
  std::copy(values.begin(), values.end(), host);
  const CUstream stream = create_stream(0);
  EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyHtoDAsync(a, host, kSize, stream));
  EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyDtoDAsync(b, a, kSize, stream));
  EXPECT_CUDA(CUDA_SUCCESS, cuMemsetD8Async(a, 0x55, kSize, stream));
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(stream));
  EXPECT_EQ(values, peek(b, kSize));
  EXPECT_EQ(std::vector<std::uint8_t>(kSize, 0x55), peek(a, kSize));
}

TEST_F(Bytes, FillsRepeatTheirElement) {
  constexpr std::size_t kSize = 5 * kMiB;
  constexpr std::uint32_t kValue = 0x89ABCDEF;
  const CUdeviceptr memory = allocate(0, kSize);
  const CUstream stream = create_stream(0);
  const auto expect = [&](std::size_t width, const char* name) {
    std::vector<std::uint8_t> expected(kSize, 0x11);
    for (std::size_t i = 0; i < kMiB * width; ++i)
      expected[8 + i] = static_cast<std::uint8_t>(kValue >> 8 * (i % width));
    EXPECT_CUDA(CUDA_SUCCESS, cuCtxSynchronize());
    EXPECT_TRUE(expected == peek(memory, kSize)) << name;
    write(memory, std::vector<std::uint8_t>(kSize, 0x11));
  };
  write(memory, std::vector<std::uint8_t>(kSize, 0x11));
  const auto narrow = static_cast<unsigned char>(kValue);
  const auto middle = static_cast<unsigned short>(kValue);
  const CUdeviceptr at = memory + 8;
  EXPECT_CUDA(CUDA_SUCCESS, cuMemsetD8_v2(at, narrow, kMiB));
  expect(1, "D8");
  EXPECT_CUDA(CUDA_SUCCESS, cuMemsetD16_v2(at, middle, kMiB));
  expect(2, "D16");
  EXPECT_CUDA(CUDA_SUCCESS, cuMemsetD32_v2(at, kValue, kMiB));
  expect(4, "D32");
  EXPECT_CUDA(CUDA_SUCCESS, cuMemsetD16Async(at, middle, kMiB, stream));
  expect(2, "D16Async");
  EXPECT_CUDA(CUDA_SUCCESS, cuMemsetD32Async(at, kValue, kMiB, stream));
  expect(4, "D32Async");
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemsetD32_v2(at + 2, kValue, 1)) << "not aligned";
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemsetD32_v2(at, kValue, std::size_t{1} << 62U));
}

TEST_F(Bytes, NoDependency_SecondCopyReadsOldBytes) {
  constexpr std::size_t kSize = 1 * kMiB;
  const CUdeviceptr a = allocate(0, kSize);
  const CUdeviceptr b = allocate(1, kSize);
  const auto old = pattern(kSize, 4);
  write(a, old);
  std::uint8_t* const host = allocate_host(kSize);
  std::fill_n(host, kSize, std::uint8_t{0x77});
  // The host link is slower than the peer link: the second copy ends first.
  EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyAsync(a, device(host), kSize, create_stream(0)));
  EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyAsync(b, a, kSize, create_stream(0)));
  EXPECT_CUDA(CUDA_SUCCESS, cuCtxSynchronize());
  EXPECT_EQ(old, peek(b, kSize));
}

TEST_F(Bytes, OddOffsetsAndSizesTouchNothingElse) {
  constexpr std::size_t kSize = 4 * kMiB + 100;
  const CUdeviceptr src = allocate(0, kSize);
  const CUdeviceptr dst = allocate(1, kSize);
  const auto values = pattern(kSize, 5);
  write(src, values);
  for (const auto& [from, to, size] :
       {std::array<std::size_t, 3>{1, 3, 7}, {kMiB - 1, 2 * kMiB + 1, kMiB}, {0, kSize - 1, 1}}) {
    std::vector<std::uint8_t> expected(kSize, 0xEE);
    write(dst, expected);
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(from), size,
                expected.begin() + static_cast<std::ptrdiff_t>(to));
    EXPECT_CUDA(CUDA_SUCCESS, cuMemcpy(dst + to, src + from, size));
    EXPECT_CUDA(CUDA_SUCCESS, cuCtxSynchronize());
    EXPECT_EQ(expected, peek(dst, kSize)) << from << ' ' << to << ' ' << size;
  }
}

TEST_F(Bytes, FreshDeviceMemoryHoldsAPattern) {
  constexpr std::size_t kSize = 3 * kMiB;
  const CUdeviceptr address = allocate(0, kSize);
  EXPECT_EQ(std::vector<std::uint8_t>(kSize, 0xC3), peek(address, kSize));
  write(address + 100, std::vector<std::uint8_t>(10, 1));
  EXPECT_EQ(0xC3, peek(address + 110, 1)[0]);
  EXPECT_EQ(0xC3, peek(address + 99, 1)[0]);
}

TEST_F(Bytes, ReusedDeviceMemory_HoldsPattern) {
  constexpr std::size_t kSize = 2 * kMiB + 100 * kKiB + 5;
  for (const std::size_t next : {kSize, kSize - 70 * kKiB, kSize + 70 * kKiB}) {
    const CUdeviceptr first = allocate(0, kSize);
    write(first, pattern(kSize, 6));
    EXPECT_CUDA(CUDA_SUCCESS, cuMemFree(first));
    const CUdeviceptr second = allocate(1, next);
    write(second + 70 * kKiB, {1, 2, 3});
    EXPECT_CUDA(CUDA_SUCCESS, cuMemsetD8Async(second + kMiB, 0, 66 * kKiB, nullptr));
    EXPECT_CUDA(CUDA_SUCCESS, cuCtxSynchronize());
    std::vector<std::uint8_t> expected(next, 0xC3);
    std::copy_n(std::array<std::uint8_t, 3>{1, 2, 3}.begin(), 3, expected.begin() + 70 * kKiB);
    std::fill_n(expected.begin() + kMiB, 66 * kKiB, std::uint8_t{0});
    EXPECT_TRUE(expected == peek(second, next)) << next;
    EXPECT_CUDA(CUDA_SUCCESS, cuMemFree(second));
  }
}

TEST_F(Bytes, ReusedHostMemory_IsZero) {
  constexpr std::size_t kSize = 3 * kMiB + 5;
  for (const std::size_t next : {kSize, kSize - kMiB, kSize + kMiB}) {
    std::uint8_t* const first = allocate_host(kSize);
    std::fill_n(first + kMiB, kMiB, std::uint8_t{7});
    EXPECT_CUDA(CUDA_SUCCESS, cuMemFreeHost(first));
    EXPECT_EQ("---p", access_of(device(first)));
    std::uint8_t* const second = allocate_host(next);
    EXPECT_TRUE(std::all_of(second, second + next, [](std::uint8_t byte) { return byte == 0; }))
        << next;
    std::fill_n(second, next, std::uint8_t{8});
    EXPECT_CUDA(CUDA_SUCCESS, cuMemFreeHost(second));
  }
}

TEST_F(Bytes, ZeroFill_ReadsZeroAndTakesWrites) {
  constexpr std::size_t kSize = kMiB + 5;
  for (int i = 0; i < 2; ++i) {  // memory of the system, and of the allocation before
    const CUdeviceptr memory = allocate(0, kSize);
    std::vector<std::uint8_t> expected(kSize, 0xC3);
    for (const auto& [from, size] : {std::array<std::size_t, 2>{3, 1},
                                     {65536, 65536},
                                     {200'001, 300'000},
                                     {800'000, kSize - 800'000}}) {
      EXPECT_CUDA(CUDA_SUCCESS, cuMemsetD8(memory + from, 0, size));
      std::fill_n(expected.begin() + static_cast<std::ptrdiff_t>(from), size, std::uint8_t{0});
    }
    EXPECT_CUDA(CUDA_SUCCESS, cuCtxSynchronize());
    EXPECT_TRUE(expected == peek(memory, kSize)) << i;
    write(memory + 65540, {9, 8, 7});
    std::copy_n(std::array<std::uint8_t, 3>{9, 8, 7}.begin(), 3, expected.begin() + 65540);
    EXPECT_TRUE(expected == peek(memory, kSize)) << i;
    EXPECT_CUDA(CUDA_SUCCESS, cuMemsetD8(memory, 0, kSize));
    EXPECT_CUDA(CUDA_SUCCESS, cuCtxSynchronize());
    EXPECT_TRUE(std::vector<std::uint8_t>(kSize, 0) == peek(memory, kSize)) << i;
    EXPECT_CUDA(CUDA_SUCCESS, cuMemFree(memory));
  }
}

TEST_F(Bytes, AddressesAreNotGivenOutAgain) {
  const CUdeviceptr first = allocate(0, kMiB);
  EXPECT_CUDA(CUDA_SUCCESS, cuMemFree(first));
  EXPECT_NE(first, allocate(0, kMiB));
}

TEST_F(Bytes, DeviceMemory_IsInaccessibleToHost) {
  EXPECT_EQ("---p", access_of(allocate(0, kMiB)));
  EXPECT_EQ("rw-p", access_of(device(allocate_host(kMiB))));
}

TEST_F(Bytes, AllocatesTheWholeGpu) {
  std::size_t free = 0;
  ASSERT_CUDA(cuMemGetInfo(&free, nullptr));
  const CUdeviceptr address = allocate(0, free - kMiB);
  EXPECT_EQ(0xC3, peek(address + free - 2 * kMiB, 1)[0]);
  CUdeviceptr more = 0;
  EXPECT_CUDA(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&more, 2 * kMiB));
}

TEST_F(Bytes, VirtualTimeHasNoOtherProcesses) {
  CUdeviceptr address = allocate(0, kMiB);
  CUipcMemHandle handle{};
  EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED, cuIpcGetMemHandle(&handle, address));
  EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED, cuIpcOpenMemHandle(&address, handle, 1));
  EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED, cuIpcCloseMemHandle(address));
}

}  // namespace
}  // namespace polypath::sim::test
