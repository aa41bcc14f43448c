// The fixture of the tests with the real engine: on the simulated node in functional mode, or on
// GPUs where the real driver is found first. Which way the bytes went is asked of the simulated
// driver; on GPUs the bytes are all that is checked.
#pragma once

#include <cuda.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "owner.hpp"
#include "polypath/polypath.h"
#include "polypath_sim.h"

namespace polypath::preload::test {

inline constexpr std::size_t kMebibyte = std::size_t{1} << 20;

#define ASSERT_CUDA(call) ASSERT_EQ(CUDA_SUCCESS, call)
#define EXPECT_CUDA(call) EXPECT_EQ(CUDA_SUCCESS, call)

inline std::vector<std::uint8_t> random_bytes(std::size_t bytes, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::uint8_t> values(bytes + sizeof(std::uint64_t));
  for (std::size_t at = 0; at < bytes; at += sizeof(std::uint64_t)) {
    const std::uint64_t word = random();
    std::memcpy(values.data() + at, &word, sizeof word);
  }
  values.resize(bytes);
  return values;
}

inline CUdeviceptr device(const void* address) { return std::bit_cast<CUdeviceptr>(address); }

class NodeTest : public testing::Test {
 protected:
  void SetUp() override {
    if (cuInit(0) != CUDA_SUCCESS) GTEST_SKIP() << "no CUDA driver here";
    ASSERT_CUDA(cuDeviceGetCount(&gpus));
    if (gpus < 2) GTEST_SKIP() << "needs two GPUs";
    for (int i = 0; i < gpus; ++i) {
      contexts.push_back(nullptr);
      ASSERT_CUDA(cuDevicePrimaryCtxRetain(&contexts.back(), i));
    }
    for (int i = 0; i < gpus; ++i) {
      use(i);
      for (int peer = 0; peer < gpus; ++peer)
        if (peer != i) cuCtxEnablePeerAccess(context(peer), 0);
    }
    use(0);
  }

  void TearDown() override {
    if (contexts.empty()) return;
    for (int i = 0; i < static_cast<int>(contexts.size()); ++i) {
      use(i);
      EXPECT_CUDA(cuCtxSynchronize());
      for (const auto& [gpu, memory] : memories) {
        if (gpu == i) {
          EXPECT_CUDA(cuMemFree(memory));
        }
      }
    }
    use(0);
    for (const CUdeviceptr memory : pool_memories) EXPECT_CUDA(cuMemFreeAsync(memory, nullptr));
    EXPECT_CUDA(cuCtxSynchronize());
    for (const auto& [memory, bytes] : mapped_memories) {
      EXPECT_CUDA(cuMemUnmap(memory, bytes));
      EXPECT_CUDA(cuMemAddressFree(memory, bytes));
    }
    for (void* const memory : host_memories) EXPECT_CUDA(cuMemFreeHost(memory));
    for (int i = 0; i < static_cast<int>(contexts.size()); ++i)
      EXPECT_CUDA(cuDevicePrimaryCtxRelease(i));
  }

  [[nodiscard]] CUcontext context(int gpu) const { return contexts[static_cast<std::size_t>(gpu)]; }
  void use(int gpu) const { EXPECT_CUDA(cuCtxSetCurrent(context(gpu))); }

  CUdeviceptr allocate(int gpu, std::size_t bytes) {
    use(gpu);
    CUdeviceptr memory = 0;
    EXPECT_CUDA(cuMemAlloc(&memory, bytes));
    memories.emplace_back(gpu, memory);
    use(0);
    return memory;
  }
  // Memory that belongs to no context; only the GPUs of `access` reach it.
  CUdeviceptr allocate_mapped(int gpu, std::size_t bytes, const std::vector<int>& access) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {gpu}};
    std::size_t granularity = 1;
    EXPECT_CUDA(
        cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    bytes = (bytes + granularity - 1) / granularity * granularity;
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr memory = 0;
    EXPECT_CUDA(cuMemCreate(&handle, bytes, &properties, 0));
    EXPECT_CUDA(cuMemAddressReserve(&memory, bytes, 0, 0, 0));
    EXPECT_CUDA(cuMemMap(memory, bytes, 0, handle, 0));
    EXPECT_CUDA(cuMemRelease(handle));
    const auto rules = rules_for(access);
    EXPECT_CUDA(cuMemSetAccess(memory, bytes, rules.data(), rules.size()));
    mapped_memories.emplace_back(memory, bytes);
    return memory;
  }
  CUdeviceptr allocate_in_pool(int gpu, std::size_t bytes, const std::vector<int>& access) {
    use(gpu);
    CUmemoryPool pool = nullptr;
    CUdeviceptr memory = 0;
    EXPECT_CUDA(cuDeviceGetDefaultMemPool(&pool, gpu));
    const auto rules = rules_for(access);
    EXPECT_CUDA(cuMemPoolSetAccess(pool, rules.data(), rules.size()));
    EXPECT_CUDA(cuMemAllocAsync(&memory, bytes, nullptr));
    EXPECT_CUDA(cuCtxSynchronize());
    pool_memories.push_back(memory);
    use(0);
    return memory;
  }
  std::uint8_t* allocate_host(std::size_t bytes) {
    void* memory = nullptr;
    EXPECT_CUDA(cuMemHostAlloc(&memory, bytes, CU_MEMHOSTALLOC_PORTABLE));
    host_memories.push_back(memory);
    return static_cast<std::uint8_t*>(memory);
  }
  [[nodiscard]] CUstream create_stream(int gpu) const {
    use(gpu);
    CUstream stream = nullptr;
    EXPECT_CUDA(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    use(0);
    return stream;
  }

  // From pageable memory, which is never split.
  static void write(CUdeviceptr memory, const std::vector<std::uint8_t>& values) {
    EXPECT_CUDA(cuMemcpyHtoD(memory, values.data(), values.size()));
    EXPECT_CUDA(cuStreamSynchronize(nullptr));  // it may land after the call
  }
  static std::vector<std::uint8_t> read(CUdeviceptr memory, std::size_t bytes) {
    std::vector<std::uint8_t> values(bytes);
    EXPECT_CUDA(cuMemcpyDtoH(values.data(), memory, bytes));
    return values;
  }

  /// Whether plans of this node split a copy of `bytes` between GPUs: with a switch no other route
  /// pays. Asks the library that the shim opens; the program is not linked to it.
  static bool splits_between_gpus(std::size_t bytes) {
    static const std::size_t least = [] {
      void* const library = dlopen("libpolypath.so.0", RTLD_NOW);
      const auto create =
          function<decltype(polypath_context_create)>(library, "polypath_context_create");
      const auto destroy =
          function<decltype(polypath_context_destroy)>(library, "polypath_context_destroy");
      const auto ask =
          function<decltype(polypath_split_thresholds)>(library, "polypath_split_thresholds");
      polypath_context* engine = nullptr;
      polypath_thresholds thresholds{};
      EXPECT_EQ(POLYPATH_SUCCESS, create(nullptr, 0, &engine));
      EXPECT_EQ(POLYPATH_SUCCESS, ask(engine, &thresholds));
      destroy(engine);
      return thresholds.gpu_to_gpu;
    }();
    return bytes >= least;
  }
  template <typename Function>
  static Function* function(void* library, const char* name) {
    return reinterpret_cast<Function*>(dlsym(library, name));
  }
  /// Copies that the simulated driver was asked for so far; nothing on GPUs.
  static std::optional<std::uint64_t> simulated_copies() {
    static const bool is_simulated =
        owner_of(reinterpret_cast<const void*>(&cuInit)).library == kDriver;
    if (!is_simulated) return std::nullopt;
    return polypath_sim_copies();
  }

  static std::vector<CUmemAccessDesc> rules_for(const std::vector<int>& access) {
    std::vector<CUmemAccessDesc> rules;
    for (const int gpu : access)
      rules.push_back({{CU_MEM_LOCATION_TYPE_DEVICE, {gpu}}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
    return rules;
  }
  [[nodiscard]] std::vector<int> all_gpus() const {
    std::vector<int> all(static_cast<std::size_t>(gpus));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }

  int gpus = 0;
  std::vector<CUcontext> contexts;
  std::vector<std::pair<int, CUdeviceptr>> memories;
  std::vector<CUdeviceptr> pool_memories;
  std::vector<std::pair<CUdeviceptr, std::size_t>> mapped_memories;
  std::vector<void*> host_memories;
};

}  // namespace polypath::preload::test
