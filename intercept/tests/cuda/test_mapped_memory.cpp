// Memory that a program maps for its own GPU alone, as vLLM's sleep mode and PyTorch's expandable
// segments do: copies take routes over other GPUs, and what the program asks is answered as if
// these GPUs had no access.
#include <dlfcn.h>

#include <set>
#include <string>
#include <thread>

#include "lookup.hpp"
#include "node_test.hpp"

namespace polypath::preload::test {
namespace {

constexpr std::size_t kPart = 16 * kMebibyte;
constexpr std::size_t kBytes = 2 * kPart;

/// Access flags of all GPUs, and the attribute in each one's context.
struct Answers {
  std::vector<unsigned long long> access;
  std::vector<unsigned> attribute;
  friend bool operator==(const Answers&, const Answers&) = default;
};

class MappedMemory : public NodeTest {
 protected:
  void SetUp() override {
    NodeTest::SetUp();
    if (IsSkipped()) return;
    if (gpus < 3) GTEST_SKIP() << "no third GPU to stage on";
    ASSERT_CUDA(cuMemAddressReserve(&range, kBytes, 0, 0, 0));
    host = allocate_host(kBytes);
    stream = create_stream(0);
  }
  void TearDown() override {
    if (range != 0) {
      sleep();
      EXPECT_CUDA(cuMemAddressFree(range, kBytes));
      EXPECT_CUDA(cuStreamDestroy(stream));
    }
    NodeTest::TearDown();
  }

  static CUmemAllocationProp properties(int gpu) {
    CUmemAllocationProp what{};
    what.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    what.location = {CU_MEM_LOCATION_TYPE_DEVICE, {gpu}};
    return what;
  }
  CUresult set_access(int gpu, CUmemAccess_flags flags) const {
    const CUmemAccessDesc rule{{CU_MEM_LOCATION_TYPE_DEVICE, {gpu}}, flags};
    return cuMemSetAccess(range, kBytes, &rule, 1);
  }
  /// New memory of GPU 0 in two mappings, without access.
  void map() {
    const CUmemAllocationProp what = properties(0);
    for (std::size_t part = 0; part < kBytes; part += kPart) {
      CUmemGenericAllocationHandle handle = 0;
      ASSERT_CUDA(cuMemCreate(&handle, kPart, &what, 0));
      ASSERT_CUDA(cuMemMap(range + part, kPart, 0, handle, 0));
      handles.push_back(handle);
    }
  }
  void wake() {
    map();
    ASSERT_CUDA(set_access(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  }
  void sleep() {
    if (handles.empty()) return;
    EXPECT_CUDA(cuStreamSynchronize(stream));
    EXPECT_CUDA(cuMemUnmap(range, kBytes));
    for (const CUmemGenericAllocationHandle handle : handles) EXPECT_CUDA(cuMemRelease(handle));
    handles.clear();
  }

  /// Asks through the shim, or past it.
  template <typename GetAccess>
  Answers ask(GetAccess&& get_access) {
    Answers answers;
    for (int gpu = 0; gpu < gpus; ++gpu) {
      CUmemLocation location{CU_MEM_LOCATION_TYPE_DEVICE, {gpu}};
      unsigned long long flags = 77;
      EXPECT_CUDA(get_access(&flags, &location, range + 5));
      answers.access.push_back(flags);
      use(gpu);
      unsigned attribute = 77;
      EXPECT_CUDA(
          cuPointerGetAttribute(&attribute, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, range + kPart));
      answers.attribute.push_back(attribute);
      CUpointer_attribute both[] = {CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                    CU_POINTER_ATTRIBUTE_ACCESS_FLAGS};
      int ordinal = -1;
      unsigned flags_of_both = 77;
      void* values[] = {&ordinal, &flags_of_both};
      EXPECT_CUDA(cuPointerGetAttributes(2, both, values, range + kPart));
      EXPECT_EQ(0, ordinal);
      EXPECT_EQ(attribute, flags_of_both);
    }
    use(0);
    return answers;
  }
  Answers answers() { return ask(&cuMemGetAccess); }
  /// What the driver itself has set for the GPU.
  [[nodiscard]] unsigned long long real_access(int gpu) const {
    static void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    static const auto get =
        std::bit_cast<decltype(&cuMemGetAccess)>(look_up_past_shim(driver, "cuMemGetAccess"));
    CUmemLocation location{CU_MEM_LOCATION_TYPE_DEVICE, {gpu}};
    unsigned long long flags = 77;
    EXPECT_CUDA(get(&flags, &location, range));
    return flags;
  }
  [[nodiscard]] std::set<int> gpus_with_access() const {
    std::set<int> reaching;
    for (int gpu = 0; gpu < gpus; ++gpu)
      if (real_access(gpu) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) reaching.insert(gpu);
    return reaching;
  }
  /// No GPU but 0 has access, as the program sees it.
  [[nodiscard]] Answers own_access_alone() const {
    Answers own;
    own.access.assign(static_cast<std::size_t>(gpus), CU_MEM_ACCESS_FLAGS_PROT_NONE);
    own.attribute.assign(static_cast<std::size_t>(gpus), CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE);
    own.access[0] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    own.attribute[0] = CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
    return own;
  }

  enum class Way : std::uint8_t { native, over_other_gpus };
  /// Bytes over links between GPU 0 and others.
  [[nodiscard]] std::uint64_t bytes_over_others(bool is_to_gpu) const {
    std::uint64_t bytes = 0;
    for (int other = 1; other < gpus; ++other) {
      const std::string name = "gpu" + std::to_string(other);
      bytes += is_to_gpu ? polypath_sim_link_bytes(name.c_str(), "gpu0")
                         : polypath_sim_link_bytes("gpu0", name.c_str());
    }
    return bytes;
  }
  void expect_way(Way way, bool is_to_gpu) const {
    if (!simulated_copies()) return;
    if (way == Way::native) {
      EXPECT_EQ(0U, bytes_over_others(is_to_gpu));
      EXPECT_EQ(1U, *simulated_copies());
    } else {
      EXPECT_GT(bytes_over_others(is_to_gpu), kBytes / 4);
    }
  }
  static void count_anew() {
    if (simulated_copies()) polypath_sim_reset_counters();
  }
  /// Writes the mapped memory from pinned memory, reads it back, and checks every byte. What GPU 0
  /// sends to others it reads itself: that takes every route without access of theirs.
  void there_and_back(Way way) {
    const auto values = random_bytes(kBytes, ++seed);
    std::ranges::copy(values, host);
    count_anew();
    ASSERT_CUDA(cuMemcpyHtoDAsync(range, host, kBytes, stream));
    ASSERT_CUDA(cuStreamSynchronize(stream));
    expect_way(way, true);
    std::fill_n(host, kBytes, std::uint8_t{0xEE});
    count_anew();
    ASSERT_CUDA(cuMemcpyDtoHAsync(host, range, kBytes, stream));
    ASSERT_CUDA(cuStreamSynchronize(stream));
    expect_way(Way::over_other_gpus, false);
    EXPECT_TRUE(std::equal(values.begin(), values.end(), host));
  }

  CUdeviceptr range = 0;
  std::vector<CUmemGenericAllocationHandle> handles;
  std::uint8_t* host = nullptr;
  CUstream stream = nullptr;
  std::uint64_t seed = 400;
};

TEST_F(MappedMemory, SleepAndWake_TakeEveryRoute) {
  for (int cycle = 0; cycle < 3; ++cycle) {
    SCOPED_TRACE(cycle);
    wake();
    // Other memory at the same addresses: what was given is gone.
    EXPECT_EQ(std::set<int>{0}, gpus_with_access());
    EXPECT_EQ(own_access_alone(), answers());
    there_and_back(Way::over_other_gpus);
    EXPECT_LT(1U, gpus_with_access().size());
    EXPECT_EQ(own_access_alone(), answers());
    there_and_back(Way::over_other_gpus);
    sleep();
  }
}

TEST_F(MappedMemory, SmallCopies_GiveNobodyAccess) {
  wake();
  ASSERT_CUDA(cuMemcpyHtoDAsync(range, host, 4096, stream));
  ASSERT_CUDA(cuStreamSynchronize(stream));
  EXPECT_EQ(std::set<int>{0}, gpus_with_access());
}

TEST_F(MappedMemory, SettingOff_GoesNatively) {
  for (int cycle = 0; cycle < 2; ++cycle) {
    wake();
    there_and_back(Way::native);
    EXPECT_EQ(std::set<int>{0}, gpus_with_access());
    EXPECT_EQ(own_access_alone(), answers());
    sleep();
  }
}

TEST_F(MappedMemory, AccessOfOthers_IsTakenByUnmapAlone) {
  wake();
  there_and_back(Way::over_other_gpus);
  const std::set<int> before = gpus_with_access();
  for (int other = 1; other < gpus; ++other) {
    EXPECT_CUDA(set_access(other, CU_MEM_ACCESS_FLAGS_PROT_NONE));
    EXPECT_EQ(own_access_alone(), answers());
  }
  // Copies under way may use what the engine gave.
  EXPECT_EQ(before, gpus_with_access());
  std::fill_n(host, kBytes, std::uint8_t{0x5A});
  ASSERT_CUDA(cuMemcpyHtoDAsync(range, host, kBytes, stream));
  for (int other = 1; other < gpus; ++other)
    EXPECT_CUDA(set_access(other, CU_MEM_ACCESS_FLAGS_PROT_NONE));
  ASSERT_CUDA(cuStreamSynchronize(stream));
  EXPECT_CUDA(set_access(1, CU_MEM_ACCESS_FLAGS_PROT_READ));
  Answers expected = own_access_alone();
  expected.access[1] = CU_MEM_ACCESS_FLAGS_PROT_READ;
  expected.attribute[1] = CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READ;
  EXPECT_EQ(expected, answers());
  there_and_back(Way::over_other_gpus);
  EXPECT_CUDA(set_access(1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  expected.access[1] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  expected.attribute[1] = CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
  EXPECT_EQ(expected, answers());
  // From now on it is the program's own, and the program takes it away.
  EXPECT_CUDA(set_access(1, CU_MEM_ACCESS_FLAGS_PROT_NONE));
  EXPECT_EQ(own_access_alone(), answers());
  EXPECT_EQ(CU_MEM_ACCESS_FLAGS_PROT_NONE, real_access(1));
}

TEST_F(MappedMemory, OwnGpuWithoutAccess_FailsAsNatively) {
  wake();
  there_and_back(Way::over_other_gpus);
  ASSERT_CUDA(set_access(0, CU_MEM_ACCESS_FLAGS_PROT_NONE));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoDAsync(range, host, kBytes, stream));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoHAsync(host, range, kBytes, stream));
  ASSERT_CUDA(set_access(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  there_and_back(Way::over_other_gpus);
}

TEST_F(MappedMemory, ReadOnly_IsReadNativelyAndNotWritten) {
  wake();
  const auto values = random_bytes(kBytes, 7);
  write(range, values);
  ASSERT_CUDA(set_access(0, CU_MEM_ACCESS_FLAGS_PROT_READ));
  const auto before = gpus_with_access();
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoDAsync(range, host, kBytes, stream));
  std::fill_n(host, kBytes, std::uint8_t{0xEE});
  count_anew();
  ASSERT_CUDA(cuMemcpyDtoHAsync(host, range, kBytes, stream));
  ASSERT_CUDA(cuStreamSynchronize(stream));
  expect_way(Way::native, false);
  EXPECT_TRUE(std::equal(values.begin(), values.end(), host));
  EXPECT_EQ(before, gpus_with_access());
}

TEST_F(MappedMemory, PeerThatMayRead_IsGivenNoMore) {
  wake();
  for (int other = 1; other < gpus; ++other)
    ASSERT_CUDA(set_access(other, CU_MEM_ACCESS_FLAGS_PROT_READ));
  const Answers before = answers();
  there_and_back(Way::native);
  EXPECT_EQ(std::set<int>{0}, gpus_with_access());
  EXPECT_EQ(before, answers());
}

TEST_F(MappedMemory, ProgramNamesSeveralGpus) {
  map();
  const auto rules = rules_for(all_gpus());
  ASSERT_CUDA(cuMemSetAccess(range, kBytes, rules.data(), rules.size()));
  const Answers before = answers();
  EXPECT_EQ(
      std::vector<unsigned long long>(before.access.size(), CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
      before.access);
  there_and_back(Way::over_other_gpus);
  EXPECT_EQ(before, answers());
}

TEST_F(MappedMemory, GpuToGpu_StagesOnThirdGpu) {
  wake();
  const CUdeviceptr far = allocate_mapped(1, kBytes, {0, 1});
  const auto values = random_bytes(kBytes, 31);
  write(range, values);
  use(1);
  write(far, std::vector<std::uint8_t>(kBytes, 0xEE));
  use(0);
  // The third GPU gets access when copies could have saved as much as that takes.
  for (int copies = 0; copies < 4; ++copies) {
    count_anew();
    ASSERT_CUDA(cuMemcpyDtoDAsync(far, range, kBytes, stream));
    ASSERT_CUDA(cuStreamSynchronize(stream));
  }
  if (simulated_copies()) {
    EXPECT_GT(*simulated_copies(), 2U);
    std::uint64_t over_third = 0;
    for (int other = 2; other < gpus; ++other)
      over_third += polypath_sim_link_bytes(("gpu" + std::to_string(other)).c_str(), "gpu1");
    EXPECT_GT(over_third, 0U);
  }
  use(1);
  EXPECT_TRUE(values == read(far, kBytes));
  use(0);
}

TEST_F(MappedMemory, PageableMemory_TakesEveryRoute) {
  wake();
  const auto values = random_bytes(kBytes, 32);
  count_anew();
  ASSERT_CUDA(cuMemcpyHtoD(range, values.data(), kBytes));
  if (simulated_copies()) {
    EXPECT_GT(bytes_over_others(true), 0U);
  }
  std::vector<std::uint8_t> back(kBytes, 0xEE);
  ASSERT_CUDA(cuMemcpyDtoH(back.data(), range, kBytes));
  EXPECT_TRUE(values == back);
  EXPECT_EQ(own_access_alone(), answers());
}

TEST_F(MappedMemory, ErrorsAreTheDrivers) {
  wake();
  there_and_back(Way::over_other_gpus);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(range, kPart / 2));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(range, kBytes, nullptr, 1));
  CUmemAccessDesc rule{{CU_MEM_LOCATION_TYPE_DEVICE, {1}}, CU_MEM_ACCESS_FLAGS_PROT_NONE};
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(range, kPart / 2, &rule, 1));
  rule.location.id = 99;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(range, kBytes, &rule, 1));
  // The mappings are as before.
  EXPECT_EQ(own_access_alone(), answers());
  there_and_back(Way::over_other_gpus);
}

TEST_F(MappedMemory, UnmappedPartByPart) {
  wake();
  there_and_back(Way::over_other_gpus);
  ASSERT_CUDA(cuMemUnmap(range, kPart));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoDAsync(range, host, kBytes, stream));
  ASSERT_CUDA(cuMemMap(range, kPart, 0, handles.front(), 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoDAsync(range, host, kBytes, stream));
  EXPECT_EQ(std::set<int>{}, gpus_with_access());
  ASSERT_CUDA(set_access(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  EXPECT_EQ(own_access_alone(), answers());
  there_and_back(Way::over_other_gpus);
}

// Memory of which nothing says that this process allocated it, as imported memory.
TEST_F(MappedMemory, UnknownMemory_IsNotShared) {
  const CUmemAllocationProp what = properties(0);
  CUmemGenericAllocationHandle handle = 0;
  CUmemGenericAllocationHandle retained = 0;
  CUdeviceptr first = 0;
  ASSERT_CUDA(cuMemAddressReserve(&first, kBytes, 0, 0, 0));
  ASSERT_CUDA(cuMemCreate(&handle, kBytes, &what, 0));
  ASSERT_CUDA(cuMemMap(first, kBytes, 0, handle, 0));
  ASSERT_CUDA(cuMemRetainAllocationHandle(&retained, std::bit_cast<void*>(first)));
  ASSERT_CUDA(cuMemRelease(handle));
  ASSERT_CUDA(cuMemMap(range, kBytes, 0, retained, 0));
  ASSERT_CUDA(set_access(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  there_and_back(Way::native);
  EXPECT_EQ(std::set<int>{0}, gpus_with_access());
  EXPECT_CUDA(cuMemUnmap(range, kBytes));
  EXPECT_CUDA(cuMemUnmap(first, kBytes));
  EXPECT_CUDA(cuMemRelease(retained));
  EXPECT_CUDA(cuMemAddressFree(first, kBytes));
}

// One thread copies to mapped memory while another one maps, asks and unmaps its own.
TEST_F(MappedMemory, ThreadsMapWhileOthersCopy) {
  wake();
  there_and_back(Way::over_other_gpus);
  std::thread mapper([&] {
    use(0);
    const CUmemAllocationProp what = properties(0);
    for (int i = 0; i < 200; ++i) {
      CUdeviceptr own = 0;
      CUmemGenericAllocationHandle handle = 0;
      const CUmemAccessDesc rule{{CU_MEM_LOCATION_TYPE_DEVICE, {0}},
                                 CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
      EXPECT_CUDA(cuMemAddressReserve(&own, kPart, 0, 0, 0));
      EXPECT_CUDA(cuMemCreate(&handle, kPart, &what, 0));
      EXPECT_CUDA(cuMemMap(own, kPart, 0, handle, 0));
      EXPECT_CUDA(cuMemSetAccess(own, kPart, &rule, 1));
      EXPECT_CUDA(set_access(1 + i % (gpus - 1), CU_MEM_ACCESS_FLAGS_PROT_NONE));
      EXPECT_CUDA(cuMemUnmap(own, kPart));
      EXPECT_CUDA(cuMemRelease(handle));
      EXPECT_CUDA(cuMemAddressFree(own, kPart));
    }
  });
  for (int i = 0; i < 5; ++i) {
    const auto values = random_bytes(kBytes, ++seed);
    std::ranges::copy(values, host);
    ASSERT_CUDA(cuMemcpyHtoDAsync(range, host, kBytes, stream));
    std::vector<std::uint8_t> back(kBytes, 0xEE);
    ASSERT_CUDA(cuMemcpyDtoHAsync(back.data(), range, kBytes, stream));
    ASSERT_CUDA(cuStreamSynchronize(stream));
    EXPECT_TRUE(values == back);
  }
  mapper.join();
  EXPECT_EQ(own_access_alone(), answers());
}

}  // namespace
}  // namespace polypath::preload::test
