// Virtual mappings: memory of several places in one range of addresses, and which GPUs may use it.
#include <cstring>

#include "fixture.hpp"
#include "mappings.hpp"

namespace polypath::sim::test {
namespace {

constexpr std::size_t kPart = 2 * kMiB;

class VirtualMemory : public SimTest {
 protected:
  void SetUp() override {
    SimTest::SetUp();
    stream = create_stream(0);
    ASSERT_CUDA(cuMemAddressReserve(&range, 4 * kPart, 0, 0, 0));
  }

  void TearDown() override {
    for (int part = 0; part < 4; ++part) cuMemUnmap(range + part * kPart, kPart);
    EXPECT_CUDA(CUDA_SUCCESS, cuMemAddressFree(range, 4 * kPart));
    SimTest::TearDown();
  }

  static CUmemAllocationProp properties(CUmemLocationType type, int id) {
    CUmemAllocationProp prop{};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = type;
    prop.location.id = id;
    return prop;
  }

  static CUresult set_access(CUdeviceptr address, std::size_t bytes, CUmemLocationType type, int id,
                             CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
    CUmemAccessDesc access{};
    access.location.type = type;
    access.location.id = id;
    access.flags = flags;
    return cuMemSetAccess(address, bytes, &access, 1);
  }

  /// Memory of that place at a part of the range, which these GPUs may use.
  CUdeviceptr map(int part, const CUmemAllocationProp& prop, std::initializer_list<int> gpus) {
    CUmemGenericAllocationHandle handle = 0;
    const CUdeviceptr address = range + static_cast<std::size_t>(part) * kPart;
    EXPECT_CUDA(CUDA_SUCCESS, cuMemCreate(&handle, kPart, &prop, 0));
    EXPECT_CUDA(CUDA_SUCCESS, cuMemMap(address, kPart, 0, handle, 0));
    EXPECT_CUDA(CUDA_SUCCESS, cuMemRelease(handle));
    for (const int gpu : gpus)
      EXPECT_CUDA(CUDA_SUCCESS, set_access(address, kPart, CU_MEM_LOCATION_TYPE_DEVICE, gpu));
    return address;
  }
  CUdeviceptr map_device(int part, int gpu, std::initializer_list<int> gpus) {
    return map(part, properties(CU_MEM_LOCATION_TYPE_DEVICE, gpu), gpus);
  }
  CUdeviceptr map_host(int part, int numa, std::initializer_list<int> gpus) {
    return map(part, properties(CU_MEM_LOCATION_TYPE_HOST_NUMA, numa), gpus);
  }

  template <typename T>
  static T attribute(CUpointer_attribute attribute, CUdeviceptr address, T value) {
    EXPECT_CUDA(CUDA_SUCCESS, cuPointerGetAttribute(&value, attribute, address));
    return value;
  }

  CUresult copy(CUdeviceptr dst, CUdeviceptr src, std::size_t bytes) {
    const CUresult result = cuMemcpyAsync(dst, src, bytes, stream);
    EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(stream));
    return result;
  }

  CUdeviceptr range = 0;
  CUstream stream = nullptr;
};

TEST_F(VirtualMemory, DevicesReportSupport) {
  for (const CUdevice_attribute each :
       {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
        CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED}) {
    int supported = 0;
    ASSERT_CUDA(cuDeviceGetAttribute(&supported, each, 0));
    EXPECT_EQ(1, supported);
  }
  std::size_t granularity = 0;
  const auto prop = properties(CU_MEM_LOCATION_TYPE_DEVICE, 0);
  ASSERT_CUDA(cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  EXPECT_EQ(kPart, granularity);
}

TEST_F(VirtualMemory, DeviceMapping_BelongsToNoContext) {
  map_device(0, 0, {0});
  const CUdeviceptr second = map_device(1, 1, {0, 1});
  const CUdeviceptr inside = second + 5;
  EXPECT_EQ(unsigned{CU_MEMORYTYPE_DEVICE},
            attribute(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside, 0U));
  EXPECT_EQ(1, attribute(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, inside, 7));
  EXPECT_EQ(range, attribute(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside, CUdeviceptr{0}));
  EXPECT_EQ(4 * kPart, attribute(CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside, std::size_t{0}));
  EXPECT_EQ(second, attribute(CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, inside, CUdeviceptr{0}));
  EXPECT_EQ(kPart, attribute(CU_POINTER_ATTRIBUTE_MAPPING_SIZE, inside, std::size_t{0}));
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
  EXPECT_CUDA(CUDA_SUCCESS, cuMemGetAddressRange(&base, &bytes, inside));
  EXPECT_EQ(second, base);
  EXPECT_EQ(kPart, bytes);
  EXPECT_EQ(0U, attribute(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, inside, 1U));
  EXPECT_EQ(nullptr, attribute(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, inside, CUmemoryPool{}));
  EXPECT_NE(attribute(CU_POINTER_ATTRIBUTE_BUFFER_ID, range, 0ULL),
            attribute(CU_POINTER_ATTRIBUTE_BUFFER_ID, inside, 0ULL));
  CUcontext owner = context(0);
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE,
              cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, inside));
  const unsigned yes = 1;
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE,
              cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, inside));
  unsigned type = 0;
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE,
              cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, second + kPart));
  EXPECT_EQ("---p", access_of(second));
}

TEST_F(VirtualMemory, HostMapping_IsHostMemory) {
  const CUdeviceptr memory = map_host(0, 1, {0});
  EXPECT_EQ(unsigned{CU_MEMORYTYPE_HOST}, attribute(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory, 0U));
  EXPECT_EQ(4 * kPart, attribute(CU_POINTER_ATTRIBUTE_RANGE_SIZE, memory, std::size_t{0}));
  EXPECT_EQ("---p", access_of(memory));
  ASSERT_CUDA(set_access(memory, kPart, CU_MEM_LOCATION_TYPE_HOST, 0));
  auto* const bytes = reinterpret_cast<std::uint8_t*>(memory);
  EXPECT_EQ(0, bytes[kPart - 1]);
  const auto values = pattern(kPart, 3);
  std::memcpy(bytes, values.data(), values.size());
  const CUdeviceptr device_memory = allocate(0, kPart);
  polypath_sim_reset_counters();
  ASSERT_CUDA(copy(device_memory, memory, kPart));
  EXPECT_TRUE(values == peek(device_memory, kPart));
  EXPECT_EQ(0U, polypath_sim_pageable_copies());
  std::memset(bytes, 0, kPart);
  ASSERT_CUDA(copy(memory, device_memory, kPart));
  EXPECT_EQ(0, std::memcmp(bytes, values.data(), kPart));
}

TEST_F(VirtualMemory, CopySpansSeveralMappings) {
  map_device(0, 0, {0});
  map_device(1, 1, {0});
  map_host(2, 0, {0});
  const auto values = pattern(3 * kPart - 100, 5);
  const CUdeviceptr plain = allocate(0, values.size());
  write(plain, values);
  polypath_sim_reset_counters();
  ASSERT_CUDA(copy(range + 50, plain, values.size()));
  EXPECT_EQ(kPart, polypath_sim_link_bytes("gpu0", "gpu1"));
  EXPECT_EQ(kPart - 50, polypath_sim_link_bytes("gpu0", "host0"));
  const CUdeviceptr back = allocate(0, values.size());
  ASSERT_CUDA(copy(back, range + 50, values.size()));
  EXPECT_TRUE(values == peek(back, values.size()));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, copy(range + 51, plain, 3 * kPart));  // the rest is a gap
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, copy(range + 3 * kPart, plain, 10));
}

TEST_F(VirtualMemory, CopyNeedsAccess) {
  const CUdeviceptr memory = map_device(0, 1, {1});
  enable_peer(0, 1);  // does not count for mappings
  const CUdeviceptr plain = allocate(0, kPart);
  polypath_sim_reset_counters();
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, copy(memory, plain, kPart));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, copy(plain, memory, kPart));
  EXPECT_EQ(0U, polypath_sim_copies());
  const auto give = [&](CUmemAccess_flags flags) {
    return set_access(memory, kPart, CU_MEM_LOCATION_TYPE_DEVICE, 0, flags);
  };
  ASSERT_CUDA(give(CU_MEM_ACCESS_FLAGS_PROT_READ));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, copy(memory, plain, kPart));
  EXPECT_CUDA(CUDA_SUCCESS, copy(plain, memory, kPart));
  ASSERT_CUDA(give(CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  EXPECT_CUDA(CUDA_SUCCESS, copy(memory, plain, kPart));
  EXPECT_EQ(0U, polypath_sim_bounced_copies());
  ASSERT_CUDA(give(CU_MEM_ACCESS_FLAGS_PROT_NONE));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, copy(plain, memory, kPart));
}

TEST_F(VirtualMemory, EveryMappingOfTheRangeCounts) {
  map_device(0, 0, {0});
  map_device(1, 0, {});
  map_device(2, 0, {0});
  const CUdeviceptr plain = allocate(0, 3 * kPart);
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, copy(plain, range, 3 * kPart));
  EXPECT_CUDA(CUDA_SUCCESS, copy(plain, range, kPart));
  ASSERT_CUDA(set_access(range, 3 * kPart, CU_MEM_LOCATION_TYPE_DEVICE, 0));
  EXPECT_CUDA(CUDA_SUCCESS, copy(plain, range, 3 * kPart));
}

TEST_F(VirtualMemory, AccessCanBeAskedFor) {
  const CUdeviceptr memory = map_device(0, 0, {0});
  const auto access = [&](int gpu) {
    CUmemLocation location{};
    location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    location.id = gpu;
    unsigned long long flags = 7;
    EXPECT_CUDA(CUDA_SUCCESS, cuMemGetAccess(&flags, &location, memory + 1));
    return flags;
  };
  EXPECT_EQ(3U, access(0));
  EXPECT_EQ(0U, access(1));
  EXPECT_EQ(unsigned{CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE},
            attribute(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, memory, 0U));
  use(1);
  EXPECT_EQ(unsigned{CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE},
            attribute(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, memory, 7U));
  use(0);
  // GPU 1 and GPU 2 do not reach each other; no CPU reaches a GPU here.
  map_device(1, 1, {});
  EXPECT_CUDA(CUDA_ERROR_INVALID_DEVICE,
              set_access(range + kPart, kPart, CU_MEM_LOCATION_TYPE_DEVICE, 2));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, set_access(memory, kPart, CU_MEM_LOCATION_TYPE_HOST, 0));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE,
              set_access(memory, kPart / 2, CU_MEM_LOCATION_TYPE_DEVICE, 0));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE,
              set_access(memory, 3 * kPart, CU_MEM_LOCATION_TYPE_DEVICE, 0));
}

TEST_F(VirtualMemory, MemoryLivesAsLongAsAHandleOrAMapping) {
  std::size_t before = 0;
  std::size_t after = 0;
  ASSERT_CUDA(cuMemGetInfo(&before, nullptr));
  const CUdeviceptr memory = map_device(0, 0, {0});
  CUmemGenericAllocationHandle handle = 0;
  ASSERT_CUDA(cuMemRetainAllocationHandle(&handle, reinterpret_cast<void*>(memory + 9)));
  ASSERT_CUDA(cuMemMap(range + kPart, kPart, 0, handle, 0));  // a second address of it
  ASSERT_CUDA(set_access(range + kPart, kPart, CU_MEM_LOCATION_TYPE_DEVICE, 0));
  const auto values = pattern(kPart, 6);
  write(memory, values);
  ASSERT_CUDA(cuMemUnmap(memory, kPart));
  EXPECT_TRUE(values == peek(range + kPart, kPart));
  ASSERT_CUDA(cuMemUnmap(range + kPart, kPart));
  ASSERT_CUDA(cuMemGetInfo(&after, nullptr));
  EXPECT_EQ(before - kPart, after);
  CUmemAllocationProp prop{};
  ASSERT_CUDA(cuMemGetAllocationPropertiesFromHandle(&prop, handle));
  EXPECT_EQ(CU_MEM_LOCATION_TYPE_DEVICE, prop.location.type);
  ASSERT_CUDA(cuMemRelease(handle));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemRelease(handle));
  ASSERT_CUDA(cuMemGetInfo(&after, nullptr));
  EXPECT_EQ(before, after);
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE,
              cuMemRetainAllocationHandle(&handle, reinterpret_cast<void*>(allocate(0, kPart))));
}

TEST_F(VirtualMemory, WorkUnderWayIsWaitedFor) {
  const CUdeviceptr memory = map_device(0, 0, {0});
  const auto values = pattern(kPart, 7);
  write(memory, values);
  const CUdeviceptr plain = allocate(0, kPart);
  ASSERT_CUDA(cuMemcpyAsync(plain, memory, kPart, stream));
  ASSERT_CUDA(cuMemUnmap(memory, kPart));
  EXPECT_TRUE(values == peek(plain, kPart));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, copy(plain, memory, kPart));
}

TEST_F(VirtualMemory, AccessTakenDuringACopy_FailsTheContext) {
  const CUdeviceptr memory = map_device(0, 1, {0, 1});
  const CUdeviceptr plain = allocate(0, kPart);
  ASSERT_CUDA(cuMemcpyAsync(memory, plain, kPart, stream));
  // Access of a GPU that takes no part.
  ASSERT_CUDA(
      set_access(memory, kPart, CU_MEM_LOCATION_TYPE_DEVICE, 1, CU_MEM_ACCESS_FLAGS_PROT_NONE));
  ASSERT_CUDA(cuStreamSynchronize(stream));
  std::uint32_t* word = nullptr;
  ASSERT_CUDA(cuMemHostAlloc(reinterpret_cast<void**>(&word), sizeof *word, 0));
  for (const bool is_fill : {false, true}) {
    ASSERT_CUDA(set_access(memory, kPart, CU_MEM_LOCATION_TYPE_DEVICE, 0));
    *word = 0;
    ASSERT_CUDA(cuStreamWaitValue32(stream, reinterpret_cast<CUdeviceptr>(word), 1,
                                    CU_STREAM_WAIT_VALUE_EQ));
    ASSERT_CUDA(is_fill ? cuMemsetD8Async(memory, 7, kPart, stream)
                        : cuMemcpyAsync(memory, plain, kPart, stream));
    ASSERT_CUDA(
        set_access(memory, kPart, CU_MEM_LOCATION_TYPE_DEVICE, 0, CU_MEM_ACCESS_FLAGS_PROT_READ));
    __atomic_store_n(word, 1U, __ATOMIC_RELEASE);
    EXPECT_CUDA(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
    EXPECT_CUDA(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemcpyAsync(plain, plain, 1, stream));
    polypath_sim_fail_context(0, CUDA_SUCCESS);
    ASSERT_CUDA(cuStreamSynchronize(stream));
  }
  EXPECT_CUDA(CUDA_SUCCESS, cuMemFreeHost(word));
}

TEST_F(VirtualMemory, WrongSizesAndRanges_AreRefused) {
  CUmemGenericAllocationHandle handle = 0;
  auto prop = properties(CU_MEM_LOCATION_TYPE_DEVICE, 0);
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, kPart + 1, &prop, 0));
  EXPECT_CUDA(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate(&handle, 64 * kGiB, &prop, 0));
  prop.location.id = 9;
  EXPECT_CUDA(CUDA_ERROR_INVALID_DEVICE, cuMemCreate(&handle, kPart, &prop, 0));
  prop = properties(CU_MEM_LOCATION_TYPE_HOST_NUMA, 9);
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, kPart, &prop, 0));
  prop = properties(CU_MEM_LOCATION_TYPE_DEVICE, 0);
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED, cuMemCreate(&handle, kPart, &prop, 0));
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;

  map_device(0, 0, {});
  ASSERT_CUDA(cuMemCreate(&handle, kPart, &prop, 0));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemMap(range, kPart, 0, handle, 0));  // taken
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemMap(range + kPart, 2 * kPart, 0, handle, 0));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemMap(range + 4 * kPart, kPart, 0, handle, 0));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(range, 4 * kPart));  // in use
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(range + kPart, kPart));
  ASSERT_CUDA(cuMemRelease(handle));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemMap(range + kPart, kPart, 0, handle, 0));
}

TEST_F(VirtualMemory, PeerCopiesNeedTheNamedContextsAccessOnly) {
  const CUdeviceptr memory = map_device(0, 1, {1});
  const CUdeviceptr plain = allocate(0, kPart);
  const auto values = pattern(kPart, 8);
  write(plain, values);
  polypath_sim_reset_counters();
  ASSERT_CUDA(cuMemcpyPeerAsync(memory, context(1), plain, context(0), kPart, stream));
  ASSERT_CUDA(cuStreamSynchronize(stream));
  EXPECT_EQ(1U, polypath_sim_bounced_copies());
  EXPECT_TRUE(values == peek(memory, kPart));
}

}  // namespace
}  // namespace polypath::sim::test
