// The C API of pools and of collectives from kernels, as a program links it, on a simulated node.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <string>

#include "collectives_kernels.h"
#include "polypath/messaging/device_collectives.h"
#include "polypath/messaging/pool.h"
#include "pool_kernels.h"
#include "queue_rig.hpp"
#include "shared_pool_kernels.h"

namespace polypath::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int kRanks = 3;

class PoolApi : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(POLYPATH_SUCCESS, polypath_context_create(nullptr, 0, &context_))
        << polypath_last_error();
    ASSERT_EQ(POLYPATH_SUCCESS,
              polypath_comm_create_all(context_, nullptr, kRanks, nullptr, comms_.data()))
        << polypath_last_error();
    for (int rank = 0; rank < kRanks; ++rank) gpus_.push_back(std::make_unique<TestGpu>(rank));
  }
  void TearDown() override {
    gpus_.clear();
    for (polypath_comm* comm : comms_) polypath_comm_destroy(comm);
    polypath_context_destroy(context_);
  }
  /// Symmetric memory of zeros.
  std::array<polypath_symmetric*, kRanks> alloc(std::size_t bytes) {
    std::array<polypath_symmetric*, kRanks> memory{};
    EXPECT_OK(polypath_comm_alloc_all(comms_.data(), kRanks, bytes, memory.data()));
    return memory;
  }
  void free(const std::array<polypath_symmetric*, kRanks>& memory) {
    EXPECT_OK(polypath_comm_free_all(comms_.data(), kRanks, memory.data()));
  }
  template <typename T>
  static T* at(const polypath_symmetric* memory, int rank, std::size_t offset = 0) {
    return reinterpret_cast<T*>(
        static_cast<unsigned char*>(polypath_symmetric_address(memory, rank)) + offset);
  }
  template <typename T>
  std::vector<T> read(int rank, const T* from, std::size_t count) {
    gpus_.at(static_cast<std::size_t>(rank))->make_current();
    std::vector<T> values(count);
    EXPECT_CUDA(cuMemcpy(reinterpret_cast<CUdeviceptr>(values.data()),
                         reinterpret_cast<CUdeviceptr>(from), count * sizeof(T)));
    return values;
  }
  template <typename T>
  void write(int rank, T* to, const std::vector<T>& from) {
    gpus_.at(static_cast<std::size_t>(rank))->make_current();
    EXPECT_CUDA(cuMemcpy(reinterpret_cast<CUdeviceptr>(to),
                         reinterpret_cast<CUdeviceptr>(from.data()), from.size() * sizeof(T)));
    EXPECT_CUDA(cuCtxSynchronize());
  }
  void wait_for_all() {
    for (const auto& gpu : gpus_) gpu->synchronize();
    for (polypath_comm* comm : comms_) EXPECT_OK(polypath_comm_check(comm));
  }
  static std::string report(polypath_pool* pool) {
    char* json = nullptr;
    EXPECT_OK(polypath_pool_report(pool, &json));
    const std::string text = json == nullptr ? "" : json;
    polypath_free_string(json);
    return text;
  }

  polypath_context* context_ = nullptr;
  std::array<polypath_comm*, kRanks> comms_{};
  std::vector<std::unique_ptr<TestGpu>> gpus_;
};

TEST_F(PoolApi, OnOneGpu) {
  polypath_pool_options options{};
  options.bytes = std::size_t{1} << 20;
  polypath_pool* pool = nullptr;
  ASSERT_EQ(POLYPATH_SUCCESS, polypath_pool_create(comms_[1], &options, &pool))
      << polypath_last_error();
  PoolRow row{};
  ASSERT_EQ(POLYPATH_SUCCESS, polypath_pool_view(pool, &row.view, sizeof row.view));
  EXPECT_EQ(64U, row.view.slabs) << "of 16 KiB";
  const std::size_t granules = options.bytes / 64;
  const auto memory = alloc(granules * 4 + 4096);
  row.members = PoolMembers::warp;
  row.seed = 5;
  row.rounds = 10;
  row.held = at<std::uint32_t>(memory[1], 1);
  row.results = at<std::uint32_t>(memory[1], 1, granules * 4);
  gpus_[1]->launch("polypath_test_pool", 2, 64, row);
  wait_for_all();
  const auto results = read(1, row.results, PoolRow::kStatuses + PoolRow::kWrongs);
  EXPECT_GT(results[0], 0U);
  EXPECT_EQ(results[0], std::accumulate(results.begin(), results.end(), 0U)) << "all are done";
  EXPECT_THAT(report(pool), AllOf(HasSubstr("\"allocated\":" + std::to_string(results[0] / 2)),
                                  HasSubstr("\"freed\":" + std::to_string(results[0] / 2)),
                                  HasSubstr("\"failed\":0"), HasSubstr("\"held_blocks\":0"),
                                  HasSubstr("\"shared\":false"), HasSubstr("\"slabs\":64")));
  device::shared_pool_view shared{};
  EXPECT_EQ(POLYPATH_INVALID_ARGUMENT, polypath_pool_view(pool, &shared, sizeof shared));
  EXPECT_THAT(polypath_last_error(), HasSubstr("this rank's alone"));
  EXPECT_EQ(POLYPATH_INVALID_ARGUMENT, polypath_pool_view(pool, &shared, 7));
  free(memory);
  EXPECT_OK(polypath_pool_destroy(pool));
}

TEST_F(PoolApi, BlocksGoToOtherRanksAndComeBack) {
  polypath_pool_options options{};
  options.bytes = std::size_t{512} << 10;
  options.slab_bytes = 8192;
  options.returns = 1024;
  std::array<polypath_pool*, kRanks> pools{};
  ASSERT_EQ(POLYPATH_SUCCESS,
            polypath_pool_create_shared_all(comms_.data(), kRanks, &options, pools.data()))
      << polypath_last_error();
  const polypath_queue_options of_parcels = options_of(sizeof(Parcel), 256, 32);
  std::array<polypath_queue*, kRanks> parcels{};
  EXPECT_OK(polypath_queue_connect_mesh_all(comms_.data(), kRanks, &of_parcels, parcels.data()));
  constexpr std::size_t kViews = 256;
  const auto memory = alloc(kViews + 2 * kRanks * sizeof(device::queue_view));
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto own = static_cast<std::size_t>(rank);
    SharedPoolRow row{};
    EXPECT_OK(polypath_pool_view(pools[own], &row.view, sizeof row.view));
    std::vector<device::queue_view> views;
    for (const auto side : {POLYPATH_QUEUE_PRODUCER, POLYPATH_QUEUE_CONSUMER})
      for (int other = 0; other < kRanks; ++other)
        views.push_back(view_of(parcels[own], other, side));
    auto* const to = at<device::queue_view>(memory[own], rank, kViews);
    write(rank, to, views);
    row.to = to;
    row.from = to + kRanks;
    row.rounds = 4;
    row.seed = static_cast<std::uint32_t>(rank) * 77;
    row.wrong = at<std::uint32_t>(memory[own], rank);
    row.returned = row.wrong + 8;
    gpus_[own]->launch("polypath_test_shared_pool", 2, 64, row);
  }
  wait_for_all();
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto own = static_cast<std::size_t>(rank);
    const auto words = read(rank, at<std::uint32_t>(memory[own], rank), 9);
    EXPECT_EQ(0U, words[0]);
    EXPECT_EQ(4U * 64, words[8]);
    EXPECT_THAT(report(pools[own]),
                AllOf(HasSubstr("\"allocated\":256"), HasSubstr("\"freed\":256"),
                      HasSubstr("\"held_bytes\":0"), HasSubstr("\"shared\":true")));
  }
  free(memory);
  EXPECT_OK(polypath_queue_destroy_all(parcels.data(), kRanks));
  auto twice = pools;
  twice[1] = twice[0];
  EXPECT_EQ(POLYPATH_INVALID_ARGUMENT, polypath_pool_destroy_all(twice.data(), kRanks));
  EXPECT_THAT(polypath_last_error(), HasSubstr("one of pools is given twice"));
  EXPECT_OK(polypath_pool_destroy_all(pools.data(), kRanks));
}

TEST_F(PoolApi, WrongOptionsAreNamed) {
  const auto refuse = [&](polypath_pool_options options, const char* why) {
    polypath_pool* pool = nullptr;
    EXPECT_EQ(POLYPATH_INVALID_ARGUMENT, polypath_pool_create(comms_[0], &options, &pool)) << why;
    EXPECT_THAT(polypath_last_error(), HasSubstr(why));
    EXPECT_EQ(nullptr, pool);
  };
  polypath_pool_options options{};
  refuse(options, "options->bytes is 0");
  options.bytes = std::size_t{33} << 30;
  refuse(options, "options->bytes is 35433480192");
  options.bytes = std::size_t{1} << 20;
  options.slab_bytes = 100'000;
  refuse(options, "options->slab_bytes is 100000");
  options.slab_bytes = 4096;
  refuse(options, "options->slab_bytes is 4096");
  options.slab_bytes = 1 << 19;
  refuse(options, "too small");
  options.slab_bytes = 0;
  options.returns = 100;
  refuse(options, "options->returns is 100");
  options.returns = 0;
  options.reserved[1] = 1;
  refuse(options, "reserved");
  EXPECT_EQ(POLYPATH_INVALID_ARGUMENT, polypath_pool_create(comms_[0], nullptr, nullptr));
  EXPECT_EQ(POLYPATH_INVALID_ARGUMENT, polypath_pool_destroy(nullptr));
}

TEST_F(PoolApi, KernelsOfAllRanksMakeCollectives) {
  std::array<polypath_device_collectives*, kRanks> handles{};
  ASSERT_EQ(POLYPATH_SUCCESS,
            polypath_device_collectives_create_all(comms_.data(), kRanks, handles.data()))
      << polypath_last_error();
  constexpr std::size_t kCount = 700;
  constexpr std::size_t kBytes = kCount * 4;
  constexpr std::size_t kOut = 4096;
  constexpr std::size_t kIn = 8192;
  constexpr std::size_t kCalls = 12288;
  const auto memory = alloc(16384);
  std::vector<std::vector<std::int32_t>> values(kRanks);
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto own = static_cast<std::size_t>(rank);
    for (std::size_t i = 0; i < kCount; ++i)
      values[own].push_back(static_cast<std::int32_t>((i * 7919 + own * 104729) * 2654435761U));
    write(rank, at<std::int32_t>(memory[own], rank, kIn), values[own]);
    CollectiveCall call{};
    call.op = CollectiveOp::all_reduce_int_max;
    call.group = CollectiveGroup::grid;
    call.count = kCount;
    call.in = at<unsigned char>(memory[own], rank, kIn);
    call.in_bytes = call.out_bytes = kBytes;
    call.out = at<unsigned char>(memory[own], rank, kOut);
    auto* const calls = at<CollectiveCall>(memory[own], rank, kCalls);
    write(rank, calls, {call, call});
    CollectivesRow row{};
    EXPECT_OK(polypath_device_collectives_view(handles[own], &row.view, sizeof row.view));
    EXPECT_EQ(POLYPATH_INVALID_ARGUMENT,
              polypath_device_collectives_view(handles[own], &row.view, 3));
    for (int other = 0; other < kRanks; ++other)
      row.memory.at[other] = at<unsigned char>(memory[own], other);
    row.calls = calls;
    row.count = 2;
    row.aborted = at<std::uint32_t>(memory[own], rank, kCalls + 1024);
    gpus_[own]->launch("polypath_test_collectives", 2, 64, row);
  }
  wait_for_all();
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto results =
        read(rank, at<std::int32_t>(memory[static_cast<std::size_t>(rank)], rank, kOut), kCount);
    for (std::size_t i = 0; i < kCount; ++i)
      ASSERT_EQ(std::max({values[0][i], values[1][i], values[2][i]}), results[i]) << i;
  }
  free(memory);
  auto twice = handles;
  twice[1] = twice[0];
  EXPECT_EQ(POLYPATH_INVALID_ARGUMENT,
            polypath_device_collectives_destroy_all(twice.data(), kRanks));
  EXPECT_THAT(polypath_last_error(), HasSubstr("one of handles is given twice"));
  EXPECT_OK(polypath_device_collectives_destroy_all(handles.data(), kRanks));
}

}  // namespace
}  // namespace polypath::test
