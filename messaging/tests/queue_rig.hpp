// Ranks of this process with queues between them, by the C API, and the kernels of
// queue_kernels.cu and remote_kernels.cu on their GPUs: on a simulated node whose driver knows
// them.
#pragma once

#include <cuda.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "polypath/messaging.h"
#include "remote_kernels.h"

namespace polypath::test {

#define EXPECT_OK(call) EXPECT_EQ(POLYPATH_SUCCESS, call) << polypath_last_error()
#define EXPECT_CUDA(call) EXPECT_EQ(CUDA_SUCCESS, call)

constexpr std::uint32_t kPoison = 0xDEADBEEF;

/// A GPU's primary context, streams and memory; for one thread.
class TestGpu {
 public:
  explicit TestGpu(int number) : number_(number) {
    EXPECT_CUDA(cuDevicePrimaryCtxRetain(&context_, number));
    make_current();
    for (CUstream& stream : streams_) EXPECT_CUDA(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    static const char image[] = "polypath: the host builds of the tests";
    EXPECT_CUDA(cuModuleLoadData(&module_, image));
  }
  ~TestGpu() {
    make_current();
    for (CUstream stream : streams_) cuStreamDestroy(stream);
    for (const CUdeviceptr memory : memory_) cuMemFree(memory);
    cuModuleUnload(module_);
    cuDevicePrimaryCtxRelease(number_);
  }
  TestGpu(const TestGpu&) = delete;
  TestGpu& operator=(const TestGpu&) = delete;

  void make_current() const { EXPECT_CUDA(cuCtxSetCurrent(context_)); }
  template <typename Args>
  void launch(const char* kernel, unsigned blocks, unsigned threads, Args args,
              unsigned stream = 0) {
    static_assert(std::is_trivially_copyable_v<Args>);
    make_current();
    CUfunction function = nullptr;
    ASSERT_EQ(CUDA_SUCCESS, cuModuleGetFunction(&function, module_, kernel)) << kernel;
    void* all[] = {&args};
    EXPECT_CUDA(
        cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, streams_[stream], all, nullptr));
  }
  /// Memory filled with words of poison.
  PoppedItem* alloc_popped(std::size_t count) {
    make_current();
    CUdeviceptr memory = 0;
    EXPECT_CUDA(cuMemAlloc(&memory, count * sizeof(PoppedItem)));
    memory_.push_back(memory);
    const std::vector<PoppedItem> poison(count, PoppedItem{kPoison, kPoison, kPoison, kPoison});
    EXPECT_CUDA(
        cuMemcpy(memory, reinterpret_cast<CUdeviceptr>(poison.data()), count * sizeof(PoppedItem)));
    EXPECT_CUDA(cuCtxSynchronize());  // it is there for other streams
    return reinterpret_cast<PoppedItem*>(memory);
  }
  std::vector<PoppedItem> read(const PoppedItem* from, std::size_t count) {
    make_current();
    std::vector<PoppedItem> popped(count);
    EXPECT_CUDA(cuMemcpy(reinterpret_cast<CUdeviceptr>(popped.data()),
                         reinterpret_cast<CUdeviceptr>(from), count * sizeof(PoppedItem)));
    return popped;
  }
  void synchronize() {
    make_current();
    for (CUstream stream : streams_) EXPECT_CUDA(cuStreamSynchronize(stream));
  }

 private:
  int number_;
  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;
  CUstream streams_[2] = {};
  std::vector<CUdeviceptr> memory_;
};

/// Checks what came: each item once, whole, and each team's in order. Empty, or what is wrong.
inline std::string what_is_wrong(const std::vector<PoppedItem>& popped, unsigned teams,
                                 unsigned numbers) {
  std::vector<int> times(std::size_t{teams} * numbers, 0);
  std::map<std::uint32_t, std::uint32_t> next;
  for (const PoppedItem& each : popped) {
    if (each.team == kPoison) continue;
    if (each.team >= teams || each.number >= numbers || each.is_right != 1) return "a torn item";
    ++times[each.team * std::size_t{numbers} + each.number];
    if (each.number < next[each.team]) return "out of order";
    next[each.team] = each.number + 1;
  }
  for (const int count : times)
    if (count != 1) return count == 0 ? "a lost item" : "an item twice";
  return "";
}

inline polypath_queue_options options_of(std::size_t item_bytes, std::uint32_t capacity = 0,
                                         std::uint32_t segment = 0,
                                         polypath_queue_kind kind = POLYPATH_QUEUE_MPMC) {
  polypath_queue_options options{};
  options.item_bytes = item_bytes;
  options.capacity = capacity;
  options.segment = segment;
  options.kind = kind;
  return options;
}

inline device::queue_view view_of(polypath_queue* queue, int index, polypath_queue_side side) {
  device::queue_view view{};
  EXPECT_OK(polypath_queue_view(queue, index, side, &view, sizeof view));
  return view;
}
inline device::spsc_view pair_of(polypath_queue* queue, int index, polypath_queue_side side) {
  device::spsc_view view{};
  EXPECT_OK(polypath_queue_view(queue, index, side, &view, sizeof view));
  return view;
}

inline std::string report_of(polypath_queue* queue) {
  char* json = nullptr;
  EXPECT_OK(polypath_queue_report(queue, &json));
  const std::string text = json == nullptr ? "" : json;
  polypath_free_string(json);
  return text;
}

}  // namespace polypath::test
