// POLYPATH_SIM_ADDRESSES=reused: what was freed leaves its address to the next of its size.
#include <bit>

#include "fixture.hpp"

namespace polypath::sim::test {
namespace {

constexpr std::size_t kBytes = 3 * kMiB;

class Addresses : public SimTest {
 protected:
  static CUdeviceptr allocate(std::size_t bytes) {
    CUdeviceptr address = 0;
    EXPECT_CUDA(CUDA_SUCCESS, cuMemAlloc(&address, bytes));
    return address;
  }

  static unsigned long long buffer_id(CUdeviceptr address) {
    unsigned long long id = 0;
    EXPECT_CUDA(CUDA_SUCCESS, cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, address));
    return id;
  }
};

TEST_F(Addresses, ReusesLastFreedOfTheSameSize) {
  const CUdeviceptr first = allocate(kBytes);
  const CUdeviceptr second = allocate(kBytes);
  EXPECT_CUDA(CUDA_SUCCESS, cuMemFree(first));
  EXPECT_CUDA(CUDA_SUCCESS, cuMemFree(second));
  EXPECT_NE(second, allocate(kMiB));
  EXPECT_EQ(second, allocate(kBytes));
  EXPECT_EQ(first, allocate(kBytes));
}

TEST_F(Addresses, ReusedAddress_HasNewIdAndBytes) {
  const CUdeviceptr address = allocate(kBytes);
  const unsigned long long id = buffer_id(address);
  ASSERT_CUDA(cuMemsetD8Async(address, 7, kBytes, nullptr));
  EXPECT_CUDA(CUDA_SUCCESS, cuMemFree(address));
  // Until it is given out, it is as invalid as ever.
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemsetD8Async(address, 7, kBytes, nullptr));
  ASSERT_EQ(address, allocate(kBytes));
  EXPECT_NE(id, buffer_id(address));
  std::vector<std::uint8_t> contents(kBytes);
  ASSERT_EQ(0, polypath_sim_peek(address, contents.data(), kBytes));
  EXPECT_EQ(std::vector<std::uint8_t>(kBytes, 0xC3), contents);
}

TEST_F(Addresses, PinnedMemoryIsReadableAgain) {
  void* address = nullptr;
  ASSERT_CUDA(cuMemHostAlloc(&address, kBytes, 0));
  static_cast<volatile char*>(address)[0] = 7;
  EXPECT_CUDA(CUDA_SUCCESS, cuMemFreeHost(address));
  void* again = nullptr;
  ASSERT_CUDA(cuMemHostAlloc(&again, kBytes, 0));
  ASSERT_EQ(address, again);
  EXPECT_EQ(0, static_cast<volatile char*>(again)[0]);
}

}  // namespace
}  // namespace polypath::sim::test
