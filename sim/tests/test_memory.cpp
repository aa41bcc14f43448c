// Allocation, bounds, release, pools, and what pointer attributes say.
#include <cstdlib>
#include <new>

#include "fixture.hpp"

namespace polypath::sim::test {
namespace {

class MemoryTest : public SimTest {
 protected:
  static std::size_t free_bytes() {
    std::size_t free = 0;
    std::size_t total = 0;
    EXPECT_CUDA(CUDA_SUCCESS, cuMemGetInfo(&free, &total));
    EXPECT_EQ(4 * kGiB, total);
    return free;
  }

  template <typename T>
  static T attribute(CUpointer_attribute attribute, CUdeviceptr address, T value) {
    EXPECT_CUDA(CUDA_SUCCESS, cuPointerGetAttribute(&value, attribute, address));
    return value;
  }
};

TEST_F(MemoryTest, InformationCountsWhatIsAllocated) {
  const std::size_t before = free_bytes();
  const CUdeviceptr address = allocate(0, 10 * kMiB);
  EXPECT_EQ(before - 10 * kMiB, free_bytes());
  EXPECT_CUDA(CUDA_SUCCESS, cuMemFree(address));
  EXPECT_EQ(before, free_bytes());
}

TEST_F(MemoryTest, CopiesPastAnAllocationAreRefused) {
  const CUdeviceptr a = allocate(0, kMiB);
  const CUdeviceptr b = allocate(0, kMiB);
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemcpyAsync(b, a, kMiB + 1, nullptr));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemcpyAsync(b + 1, a, kMiB, nullptr));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemcpyAsync(b, a + kMiB, 1, nullptr));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemcpyAsync(b - 1, a, 1, nullptr));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemcpyAsync(b, 0, 1, nullptr));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemcpyAsync(b, a, ~std::size_t{0}, nullptr));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemsetD8Async(a, 0, kMiB + 1, nullptr));
  EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyAsync(0, 0, 0, nullptr));
  EXPECT_EQ(0U, polypath_sim_copies());
}

TEST_F(MemoryTest, FreedAddressesAreRefused) {
  const CUdeviceptr a = allocate(0, kMiB);
  const CUdeviceptr b = allocate(0, kMiB);
  EXPECT_CUDA(CUDA_SUCCESS, cuMemFree(a));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemcpyAsync(b, a, 1, nullptr));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemFree(a));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemFree(b + 1));
  std::uint8_t* const host = allocate_host(kMiB);
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemFree(device(host)));
  EXPECT_CUDA(CUDA_SUCCESS, cuMemFreeHost(host));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(host));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemcpyAsync(b, device(host), 1, nullptr));
}

TEST_F(MemoryTest, ImpossibleSizesAreRefused) {
  CUdeviceptr address = 0;
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemAlloc(&address, 0));
  EXPECT_CUDA(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&address, free_bytes() + 1));
  EXPECT_CUDA(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&address, ~std::size_t{0}));
  void* host = nullptr;
  EXPECT_CUDA(CUDA_ERROR_OUT_OF_MEMORY, cuMemHostAlloc(&host, ~std::size_t{0}, 0));
}

TEST_F(MemoryTest, FreeWaitsForWorkThatUsesTheMemory) {
  enable_peer(1, 0);
  const CUdeviceptr src = allocate(0, kMiB);
  const CUdeviceptr dst = allocate(1, kMiB);
  const auto values = pattern(kMiB, 1);
  write(src, values);
  const CUstream stream = create_stream(1);  // of another context than the memory's
  EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyAsync(dst, src, kMiB, stream));
  EXPECT_CUDA(CUDA_SUCCESS, cuMemFree(src));
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamQuery(stream));
  EXPECT_EQ(values, peek(dst, kMiB));
}

TEST_F(MemoryTest, FreeWaitsForAllWorkOfTheContext) {
  const CUdeviceptr src = allocate(0, kMiB);
  const CUdeviceptr dst = allocate(0, kMiB);
  const CUdeviceptr other = allocate(0, kMiB);
  const CUstream stream = create_stream(0);
  EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyAsync(dst, src, kMiB, stream));
  EXPECT_CUDA(CUDA_SUCCESS, cuMemFree(other));
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamQuery(stream));
}

TEST_F(MemoryTest, RegistrationPinsUntilUnregistered) {
  std::vector<std::uint8_t> memory(kMiB);
  const CUdeviceptr address = device(memory.data());
  EXPECT_CUDA(CUDA_SUCCESS, cuMemHostRegister(memory.data(), kMiB, 0));
  EXPECT_CUDA(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
              cuMemHostRegister(memory.data() + 10, 1, 0));
  EXPECT_EQ(unsigned{CU_MEMORYTYPE_HOST}, attribute(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address, 0U));
  EXPECT_CUDA(CUDA_SUCCESS, cuMemHostUnregister(memory.data()));
  EXPECT_CUDA(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(memory.data()));
  unsigned type = 0;
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE,
              cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
}

TEST_F(MemoryTest, PartlyRegisteredRange_IsRefused) {
  std::vector<std::uint8_t> memory(kMiB);
  const CUdeviceptr dst = allocate(0, kMiB);
  EXPECT_CUDA(CUDA_SUCCESS, cuMemHostRegister(memory.data() + 100, 1000, 0));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemcpyAsync(dst, device(memory.data()), 200, nullptr));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE,
              cuMemcpyAsync(dst, device(memory.data() + 100), 1001, nullptr));
  EXPECT_CUDA(CUDA_SUCCESS, cuMemHostUnregister(memory.data() + 100));
}

TEST_F(MemoryTest, AttributesOfDeviceMemory) {
  const CUdeviceptr base = allocate(1, kMiB);
  const CUdeviceptr inside = base + 1000;
  EXPECT_EQ(unsigned{CU_MEMORYTYPE_DEVICE},
            attribute(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside, 0U));
  EXPECT_EQ(1, attribute(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, inside, -1));
  EXPECT_EQ(context(1), attribute(CU_POINTER_ATTRIBUTE_CONTEXT, inside, CUcontext{}));
  EXPECT_EQ(base, attribute(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside, CUdeviceptr{0}));
  EXPECT_EQ(kMiB, attribute(CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside, std::size_t{0}));
  EXPECT_EQ(inside, attribute(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, inside, CUdeviceptr{0}));
  EXPECT_EQ(0U, attribute(CU_POINTER_ATTRIBUTE_IS_MANAGED, inside, 1U));
  EXPECT_EQ(1U, attribute(CU_POINTER_ATTRIBUTE_MAPPED, inside, 0U));
  EXPECT_EQ(1U, attribute(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, inside, 0U));
  void* host = this;
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE,
              cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, inside));
}

TEST_F(MemoryTest, SynchronousOperationsCanBeAskedFor) {
  const CUdeviceptr address = allocate(0, kMiB);
  const unsigned yes = 1;
  EXPECT_CUDA(CUDA_SUCCESS, cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address));
  EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED,
              cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
  EXPECT_CUDA(CUDA_SUCCESS, cuMemFree(address));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE,
              cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address));
}

TEST_F(MemoryTest, ManagedMemory_HasNoPreferredLocation) {
  CUdeviceptr address = 0;
  ASSERT_CUDA(cuMemAllocManaged(&address, kMiB, CU_MEM_ATTACH_GLOBAL));
  const auto preferred = [](int& place, CUdeviceptr where, std::size_t bytes) {
    return cuMemRangeGetAttribute(&place, sizeof place, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION,
                                  where, bytes);
  };
  int place = 7;
  EXPECT_CUDA(CUDA_SUCCESS, preferred(place, address, kMiB));
  EXPECT_EQ(CU_DEVICE_INVALID, place);
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, preferred(place, address, kMiB + 1));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, preferred(place, allocate(0, kMiB), kMiB));
  EXPECT_CUDA(CUDA_SUCCESS, cuMemFree(address));
}

TEST_F(MemoryTest, BufferIdsAreNeverReused) {
  const CUdeviceptr a = allocate(0, kMiB);
  const auto first = attribute(CU_POINTER_ATTRIBUTE_BUFFER_ID, a, 0ULL);
  EXPECT_CUDA(CUDA_SUCCESS, cuMemFree(a));
  EXPECT_NE(first, attribute(CU_POINTER_ATTRIBUTE_BUFFER_ID, allocate(0, kMiB), 0ULL));
}

TEST_F(MemoryTest, PluralForm_TakesForeignPointers) {
  int local = 0;
  unsigned type = 7;
  int ordinal = 7;
  CUcontext owner = context(0);
  std::size_t size = 7;
  std::array attributes{CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                        CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
  std::array<void*, 4> values{&type, &ordinal, &owner, &size};
  EXPECT_CUDA(CUDA_SUCCESS,
              cuPointerGetAttributes(4, attributes.data(), values.data(), device(&local)));
  EXPECT_EQ(0U, type);
  EXPECT_EQ(-2, ordinal);
  EXPECT_EQ(nullptr, owner);
  EXPECT_EQ(0U, size);
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE,
              cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device(&local)));
}

TEST_F(MemoryTest, ManagedMemoryIsUsableByBoth) {
  CUdeviceptr address = 0;
  EXPECT_CUDA(CUDA_SUCCESS, cuMemAllocManaged(&address, kMiB, CU_MEM_ATTACH_GLOBAL));
  EXPECT_EQ(1U, attribute(CU_POINTER_ATTRIBUTE_IS_MANAGED, address, 0U));
  EXPECT_EQ(unsigned{CU_MEMORYTYPE_DEVICE},
            attribute(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address, 0U));
  const auto values = pattern(kMiB, 6);
  std::copy(values.begin(), values.end(), std::bit_cast<std::uint8_t*>(address));
  const CUdeviceptr dst = allocate(0, kMiB);
  EXPECT_CUDA(CUDA_SUCCESS, cuMemcpy(dst, address, kMiB));
  EXPECT_CUDA(CUDA_SUCCESS, cuCtxSynchronize());
  EXPECT_EQ(values, peek(dst, kMiB));
  EXPECT_CUDA(CUDA_SUCCESS, cuMemFree(address));
}

class Pools : public MemoryTest {
 protected:
  void SetUp() override {
    MemoryTest::SetUp();
    EXPECT_CUDA(CUDA_SUCCESS, cuDeviceGetDefaultMemPool(&pool, 0));
    stream = create_stream(0);
    EXPECT_CUDA(CUDA_SUCCESS, cuMemAllocAsync(&address, kMiB, stream));
  }
  void TearDown() override {
    set_access(1, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    MemoryTest::TearDown();
  }

  CUmemAccess_flags access(int gpu) {
    CUmemLocation location{};
    location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    location.id = gpu;
    CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
    EXPECT_CUDA(CUDA_SUCCESS, cuMemPoolGetAccess(&flags, pool, &location));
    return flags;
  }
  void set_access(int gpu, CUmemAccess_flags flags) {
    CUmemAccessDesc access{};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = gpu;
    access.flags = flags;
    EXPECT_CUDA(CUDA_SUCCESS, cuMemPoolSetAccess(pool, &access, 1));
  }
  /// What GPU 1 says to a copy that reads the memory.
  CUresult read_by_gpu1() {
    enable_peer(1, 0);  // does not count for pool memory
    polypath_sim_reset_counters();
    const CUstream of_gpu1 = create_stream(1);
    const CUresult result = cuMemcpyAsync(allocate(1, kMiB), address, kMiB, of_gpu1);
    EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(of_gpu1));
    return result;
  }

  CUmemoryPool pool = nullptr;
  CUstream stream = nullptr;
  CUdeviceptr address = 0;
};

TEST_F(Pools, TheirMemoryNamesThePoolAndNoContext) {
  EXPECT_EQ(pool, attribute(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address, CUmemoryPool{}));
  EXPECT_EQ(0U, attribute(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address, 1U));
  CUcontext owner = context(0);
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE,
              cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, address));
}

TEST_F(Pools, OnlyTheOwnDeviceHasAccessAtFirst) {
  EXPECT_EQ(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, access(0));
  EXPECT_EQ(CU_MEM_ACCESS_FLAGS_PROT_NONE, access(1));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, read_by_gpu1());
  EXPECT_EQ(0U, polypath_sim_copies());
}

TEST_F(Pools, AccessCanBeGiven) {
  set_access(1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  EXPECT_EQ(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, access(1));
  EXPECT_CUDA(CUDA_SUCCESS, read_by_gpu1());
  EXPECT_EQ(0U, polypath_sim_bounced_copies());
}

TEST_F(Pools, PeerCopyWithoutAccess_IsBounced) {
  const auto values = pattern(kMiB, 4);
  write(address, values);
  const CUdeviceptr dst = allocate(1, kMiB);
  polypath_sim_reset_counters();
  const CUstream of_gpu1 = create_stream(1);
  EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyPeerAsync(dst, context(1), address, context(0), kMiB, of_gpu1));
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(of_gpu1));
  EXPECT_EQ(1U, polypath_sim_bounced_copies());
  EXPECT_TRUE(values == peek(dst, kMiB));
  // Nor does the context that is named reach it.
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE,
              cuMemcpyPeerAsync(dst, context(1), address, context(2), kMiB, of_gpu1));
}

TEST_F(Pools, CreatedPools_HaveTheirOwnAccess) {
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = 1;
  CUmemoryPool own = nullptr;
  ASSERT_CUDA(cuMemPoolCreate(&own, &properties));
  EXPECT_NE(pool, own);
  CUdeviceptr of_own = 0;
  ASSERT_CUDA(cuMemAllocFromPoolAsync(&of_own, kMiB, own, stream));
  EXPECT_EQ(own, attribute(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, of_own, CUmemoryPool{}));
  EXPECT_EQ(1, attribute(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, of_own, 7));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemcpyAsync(of_own, address, kMiB, stream));
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = 0;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  ASSERT_CUDA(cuMemPoolSetAccess(own, &access, 1));
  EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyAsync(of_own, address, kMiB, stream));

  // It may end before its memory does.
  EXPECT_CUDA(CUDA_SUCCESS, cuMemPoolDestroy(own));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemPoolDestroy(own));
  CUdeviceptr none = 0;
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemAllocFromPoolAsync(&none, kMiB, own, stream));
  EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyAsync(of_own, address, kMiB, stream));
  EXPECT_CUDA(CUDA_SUCCESS, cuMemFreeAsync(of_own, stream));
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(stream));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemPoolDestroy(pool));
}

TEST_F(Pools, DeviceAllocatesFromItsCurrentPool) {
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemoryPool own = nullptr;
  ASSERT_CUDA(cuMemPoolCreate(&own, &properties));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuDeviceSetMemPool(1, own));
  ASSERT_CUDA(cuDeviceSetMemPool(0, own));
  CUmemoryPool current = nullptr;
  ASSERT_CUDA(cuDeviceGetMemPool(&current, 0));
  EXPECT_EQ(own, current);
  CUdeviceptr memory = 0;
  ASSERT_CUDA(cuMemAllocAsync(&memory, kMiB, stream));
  EXPECT_EQ(own, attribute(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, memory, CUmemoryPool{}));
  ASSERT_CUDA(cuMemFreeAsync(memory, stream));
  ASSERT_CUDA(cuMemPoolDestroy(own));
  ASSERT_CUDA(cuDeviceGetMemPool(&current, 0));
  EXPECT_EQ(pool, current);
}

TEST_F(Pools, MemoryIsFreeWhenTheStreamGetsThere) {
  const CUdeviceptr other = allocate(0, kMiB);
  const std::size_t before = free_bytes();
  EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyAsync(other, address, kMiB, stream));
  EXPECT_CUDA(CUDA_SUCCESS, cuMemFreeAsync(address, stream));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemcpyAsync(other, address, kMiB, stream));
  EXPECT_EQ(before, free_bytes());
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(stream));
  EXPECT_EQ(before + kMiB, free_bytes());
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(address, stream));
}

}  // namespace
}  // namespace polypath::sim::test
