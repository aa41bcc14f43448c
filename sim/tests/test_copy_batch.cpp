// Batches of copies: all of them or none, and which one was wrong.
#include <algorithm>
#include <array>
#include <functional>

#include "driver_forms.hpp"
#include "fixture.hpp"

namespace polypath::sim::test {
namespace {

constexpr std::size_t kSizes[] = {kMiB, 3, 64 * kKiB + 1};
constexpr std::size_t kCount = std::size(kSizes);
constexpr std::size_t kNone = SIZE_MAX;

class CopyBatch : public SimTest {
 protected:
  void SetUp() override {
    SimTest::SetUp();
    enable_peer(0, 1);
    stream = create_stream(0);
    for (std::size_t i = 0; i < kCount; ++i) {
      dsts.push_back(allocate(1, kSizes[i]));
      srcs.push_back(allocate(0, kSizes[i]));
      sizes.push_back(kSizes[i]);
      expected.push_back(pattern(kSizes[i], static_cast<std::uint8_t>(i + 1)));
      write(srcs[i], expected[i]);
      write(dsts[i], std::vector<std::uint8_t>(kSizes[i], 0xEE));
    }
    attributes[0].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    attributes[1].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
    polypath_sim_reset_counters();
  }

  CUresult issue(CUstream on) {
    fail_index = 77;
    return cuMemcpyBatchAsync(dsts.data(), srcs.data(), sizes.data(), sizes.size(), attributes,
                              firsts, attribute_count, &fail_index, on);
  }
  void expect_arrived() {
    for (std::size_t i = 0; i < kCount; ++i) EXPECT_EQ(expected[i], peek(dsts[i], kSizes[i])) << i;
  }
  void expect_refused(std::size_t index) {
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, issue(stream));
    EXPECT_EQ(index, fail_index);
    EXPECT_EQ(0U, polypath_sim_copies());
  }

  std::vector<CUdeviceptr> dsts;
  std::vector<CUdeviceptr> srcs;
  std::vector<std::size_t> sizes;
  std::vector<std::vector<std::uint8_t>> expected;
  CUmemcpyAttributes attributes[2]{};
  std::size_t firsts[2] = {0, 2};
  std::size_t attribute_count = 2;
  std::size_t fail_index = 0;
  CUstream stream = nullptr;
};

TEST_F(CopyBatch, MovesAllInTheOrderOfTheStream) {
  EXPECT_CUDA(CUDA_SUCCESS, issue(stream));
  EXPECT_EQ(kNone, fail_index);
  EXPECT_CUDA(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(stream));
  EXPECT_EQ(kCount, polypath_sim_copies());
  expect_arrived();
}

TEST_F(CopyBatch, NewerAndPerThreadForms_MoveAll) {
  EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyBatchAsync_v2(dsts.data(), srcs.data(), sizes.data(), 1,
                                                  attributes, firsts, 1, stream));
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(stream));
  EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyBatchAsync_v2_ptsz(&dsts[1], &srcs[1], &sizes[1], 1, attributes,
                                                       firsts, 1, nullptr));
  EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyBatchAsync_ptsz(&dsts[2], &srcs[2], &sizes[2], 1, attributes,
                                                    firsts, 1, &fail_index, nullptr));
  EXPECT_CUDA(CUDA_ERROR_NOT_READY, cuStreamQuery(CU_STREAM_PER_THREAD));
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(CU_STREAM_PER_THREAD));
  expect_arrived();
}

TEST_F(CopyBatch, ReadDuringCall_IsCompleteAtReturn) {
  attributes[1].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
  EXPECT_CUDA(CUDA_SUCCESS, issue(stream));
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamQuery(stream));
  expect_arrived();
}

TEST_F(CopyBatch, WrongCopy_RefusesAllAndIsNamed) {
  sizes[1] += 4 * kMiB;
  expect_refused(1);
}

TEST_F(CopyBatch, WrongAttributesRefuseAll) {
  for (const auto& spoil : std::initializer_list<std::function<void()>>{
           [&] { attributes[1].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID; },
           [&] { attributes[0].flags = 0x100; }, [&] { firsts[0] = 1; }, [&] { firsts[1] = 0; },
           [&] { firsts[1] = kCount; }, [&] { attribute_count = 0; },
           [&] { attribute_count = kCount + 1; }}) {
    const auto attributes_before = std::to_array(attributes);
    const auto firsts_before = std::to_array(firsts);
    const std::size_t count_before = attribute_count;
    spoil();
    expect_refused(kNone);
    std::ranges::copy(attributes_before, attributes);
    std::ranges::copy(firsts_before, firsts);
    attribute_count = count_before;
  }
}

TEST_F(CopyBatch, SingleCopy_TakesAttributes) {
  EXPECT_CUDA(CUDA_SUCCESS,
              cuMemcpyWithAttributesAsync(dsts[0], srcs[0], sizes[0], &attributes[0], stream));
  EXPECT_CUDA(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(stream));
  attributes[1].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
  EXPECT_CUDA(CUDA_SUCCESS,
              cuMemcpyWithAttributesAsync(dsts[1], srcs[1], sizes[1], &attributes[1], nullptr));
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamQuery(nullptr));
  EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyWithAttributesAsync_ptsz(dsts[2], srcs[2], sizes[2],
                                                             &attributes[0], nullptr));
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(CU_STREAM_PER_THREAD));
  expect_arrived();
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE,
              cuMemcpyWithAttributesAsync(dsts[0], srcs[0], sizes[0], nullptr, stream));
  EXPECT_EQ(kCount, polypath_sim_copies());
  void* function = nullptr;
  EXPECT_CUDA(CUDA_SUCCESS,
              cuGetProcAddress("cuMemcpyWithAttributesAsync", &function, 13020, 0, nullptr));
  EXPECT_EQ(std::bit_cast<void*>(&cuMemcpyWithAttributesAsync), function);
}

TEST_F(CopyBatch, LegacyStream_IsRefused) {
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, issue(nullptr));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, issue(CU_STREAM_LEGACY));
  EXPECT_EQ(0U, polypath_sim_copies());
}

}  // namespace
}  // namespace polypath::sim::test
