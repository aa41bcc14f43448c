// Batches of copies: the large ones are offered as one group, the driver is given the rest, and
// errors name the copies that the program knows.
#include <array>

#include "driver_forms.hpp"
#include "shim_test.hpp"

namespace polypath::preload::test {
namespace {

constexpr std::size_t kNone = SIZE_MAX;

class Batches : public ShimTest {
 protected:
  /// Sizes of the copies of the test's batch.
  static constexpr std::array<std::size_t, 5> kSizes{5, kMiB, 64 * kKiB, 2 * kMiB, 7};

  void SetUp() override {
    ShimTest::SetUp();
    stream = create_stream(0);
    for (const std::size_t bytes : kSizes) {
      srcs.push_back(allocate(0, bytes));
      dsts.push_back(allocate(1, bytes));
      sizes.push_back(bytes);
    }
    attributes[0].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    attributes[1].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    fill();
  }

  void fill() {
    renew();
    expected.clear();
    for (std::size_t i = 0; i < kSizes.size(); ++i) {
      expected.push_back(pattern(kSizes[i], static_cast<std::uint8_t>(++seed)));
      write(srcs[i], expected[i]);
      write(dsts[i], std::vector<std::uint8_t>(kSizes[i], 0xEE));
    }
    renew();
    engine.answer = Answer::take;
    fail_index = 77;
  }
  CUresult issue() {
    return cuMemcpyBatchAsync(dsts.data(), srcs.data(), sizes.data(), sizes.size(),
                              attributes.data(), firsts.data(), attribute_count, &fail_index,
                              stream);
  }
  void expect_arrived() {
    EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(stream));
    for (std::size_t i = 0; i < kSizes.size(); ++i)
      EXPECT_EQ(expected[i], peek(dsts[i], kSizes[i])) << i;
  }
  /// The copies of the batch with these indices, as the engine is told.
  [[nodiscard]] std::vector<FakeEngine::Copy> offered(
      const std::vector<std::size_t>& indices) const {
    std::vector<FakeEngine::Copy> all;
    for (const std::size_t i : indices)
      all.push_back({pointer(dsts[i]), pointer(srcs[i]), sizes[i], stream});
    return all;
  }

  CUstream stream = nullptr;
  std::vector<CUdeviceptr> dsts;
  std::vector<CUdeviceptr> srcs;
  std::vector<std::size_t> sizes;
  std::vector<std::vector<std::uint8_t>> expected;
  std::array<CUmemcpyAttributes, 2> attributes{};
  std::array<std::size_t, 2> firsts{0, 2};
  std::size_t attribute_count = 1;
  std::size_t fail_index = 0;
};

TEST_F(Batches, LargeMembers_AreOffered) {
  EXPECT_CUDA(CUDA_SUCCESS, issue());
  EXPECT_EQ(offered({1, 3}), engine.copies);
  EXPECT_EQ(std::vector<std::size_t>{2}, engine.groups) << "in one call";
  EXPECT_EQ(kSizes.size(), polypath_sim_copies());
  expect_arrived();
}

TEST_F(Batches, NothingTaken_DriverCopiesAll) {
  engine.answer = Answer::leave;
  EXPECT_CUDA(CUDA_SUCCESS, issue());
  EXPECT_EQ(offered({1, 3}), engine.copies);
  EXPECT_EQ(kSizes.size(), polypath_sim_copies());
  expect_arrived();
}

TEST_F(Batches, FullyOffloaded_SkipsDriver) {
  dsts = {dsts[1], dsts[3]};
  srcs = {srcs[1], srcs[3]};
  sizes = {sizes[1], sizes[3]};
  firsts = {0, 1};
  EXPECT_CUDA(CUDA_SUCCESS, issue());
  EXPECT_EQ(offered({0, 1}), engine.copies);
  EXPECT_EQ(2U, polypath_sim_copies());
}

TEST_F(Batches, NameTheCopyOfTheRestThatFailed) {
  sizes[4] += kMiB - 8;  // past its memory, but still small
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, issue());
  EXPECT_EQ(4U, fail_index);
}

TEST_F(Batches, NameTheCopyThatTheEngineFailedAt) {
  engine.answer = Answer::fail;
  engine.cuda_result = CUDA_ERROR_LAUNCH_FAILED;
  EXPECT_CUDA(CUDA_ERROR_LAUNCH_FAILED, issue());
  EXPECT_EQ(1U, fail_index);
  EXPECT_EQ(0U, polypath_sim_copies());
}

TEST_F(Batches, NewerForm_LargeMembersAreOffered) {
  EXPECT_CUDA(CUDA_SUCCESS,
              cuMemcpyBatchAsync_v2(dsts.data(), srcs.data(), sizes.data(), sizes.size(),
                                    attributes.data(), firsts.data(), 1, stream));
  EXPECT_EQ(offered({1, 3}), engine.copies);
  expect_arrived();
}

TEST_F(Batches, AnyAccessOrder_LargeMembersAreOffered) {
  attributes[0].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
  attributes[0].flags = CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE;
  EXPECT_CUDA(CUDA_SUCCESS, issue());
  EXPECT_EQ(offered({1, 3}), engine.copies);
  expect_arrived();
}

TEST_F(Batches, DuringCallOrder_DriverCopiesAll) {
  attributes[0].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
  EXPECT_CUDA(CUDA_SUCCESS, issue());
  EXPECT_TRUE(engine.copies.empty());
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamQuery(stream));
  expect_arrived();
}

TEST_F(Batches, MixedAttributes_EligibleAreOffered) {
  attribute_count = 2;
  EXPECT_CUDA(CUDA_SUCCESS, issue());
  EXPECT_EQ(offered({1, 3}), engine.copies);
  expect_arrived();
  // The large one of these has to be read during the call.
  fill();
  attributes[1].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
  EXPECT_CUDA(CUDA_SUCCESS, issue());
  EXPECT_EQ(offered({1}), engine.copies);
  for (const std::size_t i : {2U, 3U, 4U}) EXPECT_EQ(expected[i], peek(dsts[i], kSizes[i])) << i;
  expect_arrived();
  // And now the other way round.
  fill();
  std::swap(attributes[0], attributes[1]);
  EXPECT_CUDA(CUDA_SUCCESS, issue());
  EXPECT_EQ(offered({3}), engine.copies);
  expect_arrived();
}

TEST_F(Batches, WithWrongArgumentsAreAnsweredByTheDriver) {
  for (const auto& spoil : std::initializer_list<std::function<void()>>{
           [&] { attributes[0].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID; },
           [&] { attributes[0].flags = 0x100; }, [&] { firsts[0] = 1; },
           [&] { attribute_count = 0; },
           [&] {
             attribute_count = 2;
             firsts[1] = 0;
           },
           [&] {
             attribute_count = 2;
             firsts[1] = kSizes.size();
           },
           [&] { stream = nullptr; }, [&] { stream = CU_STREAM_LEGACY; }}) {
    const auto before = std::tuple{attributes, firsts, attribute_count, stream};
    spoil();
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, issue());
    std::tie(attributes, firsts, attribute_count, stream) = before;
  }
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE,
              cuMemcpyBatchAsync(dsts.data(), srcs.data(), sizes.data(), sizes.size(), nullptr,
                                 firsts.data(), 1, &fail_index, stream));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE,
              cuMemcpyBatchAsync(nullptr, srcs.data(), sizes.data(), sizes.size(),
                                 attributes.data(), firsts.data(), 1, &fail_index, stream));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE,
              cuMemcpyBatchAsync(dsts.data(), srcs.data(), sizes.data(), 0, attributes.data(),
                                 firsts.data(), 1, &fail_index, stream));
  EXPECT_TRUE(engine.copies.empty());
  EXPECT_EQ(0U, polypath_sim_copies());
}

/// Batches of many small copies.
class WholeBatches : public Batches {
 protected:
  static constexpr std::size_t kCount = 40;
  static constexpr std::size_t kBytes = 32 * kKiB;

  void SetUp() override {
    Batches::SetUp();
    const CUdeviceptr from = allocate(0, kCount * kBytes);
    to_ = allocate(1, kCount * kBytes);
    dsts.clear();
    srcs.clear();
    sizes.assign(kCount, kBytes);
    for (std::size_t i = 0; i < kCount; ++i) {
      dsts.push_back(to_ + i * kBytes);
      srcs.push_back(from + (kCount - 1 - i) * kBytes);
    }
    contents_ = pattern(kCount * kBytes, 9);
    write(from, contents_);
    write(to_, std::vector<std::uint8_t>(kCount * kBytes, 0xEE));
    renew();
    engine.batches.clear();
    engine.answer = Answer::take;
    firsts = {0, kCount / 2};
  }
  void expect_all_arrived() {
    EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(stream));
    const auto arrived = peek(to_, kCount * kBytes);
    for (std::size_t i = 0; i < kCount; ++i)
      ASSERT_TRUE(
          std::equal(arrived.begin() + static_cast<std::ptrdiff_t>(i * kBytes),
                     arrived.begin() + static_cast<std::ptrdiff_t>((i + 1) * kBytes),
                     contents_.begin() + static_cast<std::ptrdiff_t>((kCount - 1 - i) * kBytes)))
          << i;
  }

  CUdeviceptr to_ = 0;
  std::vector<std::uint8_t> contents_;
};

TEST_F(WholeBatches, SmallCopies_AreOfferedAsOne) {
  attribute_count = 2;
  EXPECT_CUDA(CUDA_SUCCESS, issue());
  EXPECT_EQ(std::vector<std::size_t>{kCount}, engine.batches);
  EXPECT_EQ(SIZE_MAX, fail_index);
  EXPECT_TRUE(engine.copies.empty());
  EXPECT_EQ(kCount, polypath_sim_copies()) << "by the engine";
  expect_all_arrived();
}

TEST_F(WholeBatches, NewerForm_IsOffered) {
  EXPECT_CUDA(CUDA_SUCCESS,
              cuMemcpyBatchAsync_v2(dsts.data(), srcs.data(), sizes.data(), sizes.size(),
                                    attributes.data(), firsts.data(), 1, stream));
  EXPECT_EQ(std::vector<std::size_t>{kCount}, engine.batches);
  expect_all_arrived();
}

TEST_F(WholeBatches, Left_DriverCopiesAll) {
  for (const Answer answer : {Answer::leave, Answer::refuse}) {
    engine.answer = answer;
    write(to_, std::vector<std::uint8_t>(kCount * kBytes, 0xEE));
    EXPECT_CUDA(CUDA_SUCCESS, issue());
    expect_all_arrived();
  }
  EXPECT_EQ((std::vector<std::size_t>{kCount, kCount}), engine.batches);
}

TEST_F(WholeBatches, EngineFails_ProgramIsTold) {
  engine.answer = Answer::fail;
  engine.cuda_result = CUDA_ERROR_LAUNCH_FAILED;
  EXPECT_CUDA(CUDA_ERROR_LAUNCH_FAILED, issue());
  EXPECT_EQ(SIZE_MAX, fail_index);
  EXPECT_EQ(0U, polypath_sim_copies());
}

TEST_F(WholeBatches, OtherOrderOrFewCopies_AreNotOffered) {
  attribute_count = 2;
  attributes[1].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
  EXPECT_CUDA(CUDA_SUCCESS, issue());
  expect_all_arrived();
  attribute_count = 1;
  EXPECT_CUDA(CUDA_SUCCESS,
              cuMemcpyBatchAsync(dsts.data(), srcs.data(), sizes.data(), 7, attributes.data(),
                                 firsts.data(), 1, &fail_index, stream));
  EXPECT_TRUE(engine.batches.empty());
}

// With any subset that the engine takes.
TEST_F(Batches, RandomAnswers_AllArrive) {
  std::uint32_t state = 1;
  const auto random = [&](std::uint32_t below) {
    state = state * 1664525 + 1013904223;
    return (state >> 8) % below;
  };
  for (int round = 0; round < 20; ++round) {
    SCOPED_TRACE(round);
    fill();
    engine.during_copy = [&] { engine.answer = random(2) == 0 ? Answer::take : Answer::leave; };
    EXPECT_CUDA(CUDA_SUCCESS, issue());
    EXPECT_EQ(offered({1, 3}), engine.copies);
    EXPECT_EQ(kSizes.size(), polypath_sim_copies());
    expect_arrived();
  }
}

}  // namespace
}  // namespace polypath::preload::test
