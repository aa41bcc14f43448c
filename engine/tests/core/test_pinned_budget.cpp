// Pinned memory of all kinds is bounded together; what does not fit costs routes, never a transfer.
#include "exec/pinned_budget.hpp"

#include <nlohmann/json.hpp>

#include "core/json.hpp"
#include "core/report.hpp"
#include "support/simulated_test.hpp"

namespace polypath::test {
namespace {

class PinnedMemory : public SimulatedTest {
 protected:
  void SetUp() override {
    SimulatedTest::SetUp();
    if (IsSkipped()) return;
    ASSERT_EQ(0U, PinnedBudget::used());
  }
  void TearDown() override {
    EXPECT_EQ(0U, PinnedBudget::used()) << "all contexts are gone";
    SimulatedTest::TearDown();
  }
  /// Asks for every pool: rings for many transfers at once, slots of many threads, tables.
  void prepare_all(Context& context) {
    std::vector<Request> requests;
    for (int round = 0; round < 8; ++round)
      for (int gpu = 0; gpu < gpus(); ++gpu) {
        requests.push_back({MemoryId::host(0), MemoryId::gpu(gpu), kSplitBytes});
        if (gpu > 0) requests.push_back({MemoryId::gpu(0), MemoryId::gpu(gpu), kSplitBytes});
      }
    const auto prepare = [&](const std::vector<Request>& asked) {
      try {
        context.prepare(asked);
      } catch (const DriverError& error) {
        EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY, error.code()) << error.what();
      }
    };
    prepare(requests);
    Request pageable{MemoryId::host(0), MemoryId::gpu(0), kSplitBytes};
    pageable.is_pageable = true;
    prepare({pageable});
    try {
      context.prepare_batches({{MemoryId::host(0), MemoryId::gpu(0), 0}});
    } catch (const Error&) {
      // No kernels, or no room.
    }
  }
  void expect_arrival(Context& context, MemoryId src, MemoryId dst) {
    const Payload data = payload({src, dst, kSplitBytes});
    const Stream stream = stream_on(0);
    copy(context, data.transfer(stream.get()));
    synchronize(stream.get());
    EXPECT_TRUE(data.arrived());
  }
};

TEST_F(PinnedMemory, DefaultLimit_BoundsAllPools) {
  Context context(source(), {{"copy_threads", "64"}, {"staging_size", "256M"}});
  prepare_all(context);
  EXPECT_LE(PinnedBudget::used(), 256 * kMiB);
  EXPECT_GT(PinnedBudget::used(), 0U);
  const auto pinned = counters_json(context)["pinned"];
  EXPECT_EQ(PinnedBudget::used(), pinned["bytes"].get<std::uint64_t>());
  EXPECT_EQ(256 * kMiB, pinned["limit_bytes"].get<std::uint64_t>());
  EXPECT_NE(report(context).find("pinned memory: "), std::string::npos);
  expect_arrival(context, MemoryId::host(0), MemoryId::gpu(0));
}

TEST_F(PinnedMemory, ContextsShareTheLimit) {
  Context first(source(), {{"copy_threads", "64"}});
  prepare_all(first);
  const std::uint64_t before = PinnedBudget::used();
  Context second(source(), {{"copy_threads", "64"}});
  prepare_all(second);
  EXPECT_LE(before, PinnedBudget::used());
  EXPECT_LE(PinnedBudget::used(), 256 * kMiB);
  expect_arrival(second, MemoryId::host(0), MemoryId::gpu(0));
}

TEST_F(PinnedMemory, NoRoom_LeavesRoutesOut) {
  Context context(source(), {{"pinned_limit", "0"}, {"copy_threads", "4"}, {"prepare", "wait"}});
  prepare_all(context);
  EXPECT_EQ(0U, PinnedBudget::used());
  expect_arrival(context, MemoryId::host(0), MemoryId::gpu(0));
  if (gpus() > 1) expect_arrival(context, MemoryId::gpu(0), MemoryId::gpu(1));
  // Memory that CUDA does not know.
  std::vector<std::byte> memory(kSplitBytes);
  for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::byte>(random_());
  TestBuffer buffer(driver(), node(), MemoryId::gpu(0), kSplitBytes);
  buffer.poison();
  const Stream stream = stream_on(0);
  const Traffic traffic(context);
  copy(context,
       {buffer.address(), reinterpret_cast<CUdeviceptr>(memory.data()), kSplitBytes, stream.get()});
  synchronize(stream.get());
  EXPECT_EQ(1U, traffic.native());
  EXPECT_EQ(memory, read_back(driver(), buffer, 0, kSplitBytes));
}

TEST_F(PinnedMemory, SharesAreReturned) {
  PinnedBudget budget(10);
  {
    PinnedBudget::Share share = budget.take(6);
    EXPECT_EQ(6U, PinnedBudget::used());
    EXPECT_THROW(budget.take(5), DriverError);
    PinnedBudget::Share moved = std::move(share);
    const PinnedBudget::Share rest = budget.take(4);
    EXPECT_EQ(10U, PinnedBudget::used());
    EXPECT_THROW(budget.take(1), DriverError);
    EXPECT_THROW(PinnedBudget(9).take(~std::uint64_t{0}), DriverError);
  }
  EXPECT_EQ(0U, PinnedBudget::used());
}

}  // namespace
}  // namespace polypath::test
