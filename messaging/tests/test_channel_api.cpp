// The C API of channels and active messages: what it makes, and what it refuses by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <thread>
#include <vector>

#include "polypath/device/active_messages_view.hpp"
#include "polypath/device/channel_view.hpp"
#include "polypath/messaging/channel.h"

namespace polypath::test {
namespace {

using testing::HasSubstr;

constexpr int kRanks = 3;

class ChannelApi : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(POLYPATH_SUCCESS, polypath_context_create(nullptr, 0, &context_));
    polypath_comm_options options{};
    options.timeout_ms = 20'000;
    ASSERT_EQ(POLYPATH_SUCCESS,
              polypath_comm_create_all(context_, nullptr, kRanks, &options, comms_.data()))
        << polypath_last_error();
    ASSERT_EQ(POLYPATH_SUCCESS,
              polypath_comm_alloc_all(comms_.data(), kRanks, kBytes, windows_.data()));
  }
  void TearDown() override {
    for (polypath_comm* comm : comms_) polypath_comm_destroy(comm);
    polypath_context_destroy(context_);
  }
  polypath_status create(const polypath_channel_options& options, int windows = 1) {
    return polypath_channel_create_all(comms_.data(), kRanks, &options, windows_.data(), windows,
                                       channels_.data());
  }
  void expect_refused(const polypath_channel_options& options, const std::string& why,
                      int windows = 1) {
    EXPECT_EQ(POLYPATH_INVALID_ARGUMENT, create(options, windows)) << why;
    EXPECT_THAT(polypath_last_error(), HasSubstr(why));
  }
  void expect_refused(const polypath_active_messages_options& options, const std::string& why) {
    std::array<polypath_active_messages*, kRanks> all{};
    EXPECT_EQ(POLYPATH_INVALID_ARGUMENT,
              polypath_active_messages_create_all(comms_.data(), kRanks, &options, all.data()));
    EXPECT_THAT(polypath_last_error(), HasSubstr(why));
  }

  static constexpr std::size_t kBytes = 1 << 16;
  polypath_context* context_ = nullptr;
  std::array<polypath_comm*, kRanks> comms_{};
  std::array<polypath_symmetric*, kRanks> windows_{};
  std::array<polypath_channel*, kRanks> channels_{};
};

TEST_F(ChannelApi, GivesEachRankItsView) {
  polypath_channel_options options{};
  options.contexts = 5;
  options.timeout_ms = 1234;
  ASSERT_EQ(POLYPATH_SUCCESS, create(options)) << polypath_last_error();
  for (int rank = 0; rank < kRanks; ++rank) {
    device::channel_view view{};
    polypath_channel* const channel = channels_[static_cast<std::size_t>(rank)];
    ASSERT_EQ(POLYPATH_SUCCESS, polypath_channel_view(channel, &view, sizeof view));
    EXPECT_EQ(view.rank, static_cast<std::uint32_t>(rank));
    EXPECT_EQ(view.ranks, 3U);
    EXPECT_EQ(view.contexts, 5U);
    EXPECT_EQ(view.units_log2, 10U);
    EXPECT_EQ(view.requests_log2, 7U);
    EXPECT_EQ(view.windows, 1U);
    EXPECT_EQ(view.eager_bytes, 512U);
    EXPECT_EQ(view.wait_ctx.time_limit_ns, 1'234'000'000U);
    EXPECT_NE(view.wait_ctx.status, nullptr);
    EXPECT_NE(view.local, nullptr);
    EXPECT_NE(view.number, 0U);
    EXPECT_EQ(POLYPATH_INVALID_ARGUMENT, polypath_channel_view(channel, &view, sizeof view - 8));
    EXPECT_THAT(polypath_last_error(), HasSubstr("another version"));
  }
  auto twice = channels_;
  twice.back() = twice.front();
  EXPECT_EQ(POLYPATH_INVALID_ARGUMENT, polypath_channel_destroy_all(twice.data(), kRanks));
  EXPECT_THAT(polypath_last_error(), HasSubstr("one of the handles is given twice"));
  EXPECT_EQ(POLYPATH_SUCCESS, polypath_channel_destroy_all(channels_.data(), kRanks));
}

TEST_F(ChannelApi, RefusesOptionsByTheirNames) {
  polypath_channel_options options{};
  options.ring_bytes = 1000;
  expect_refused(options, "options->ring_bytes is 1000");
  options = {};
  options.requests = 2048;
  expect_refused(options, "options->requests is 2048");
  options = {};
  options.unexpected = 48;
  expect_refused(options, "options->unexpected is 48");
  options = {};
  options.contexts = 70'000;
  expect_refused(options, "options->contexts is 70000");
  options = {};
  options.ring_bytes = 256;
  options.eager_bytes = 500;
  expect_refused(options, "options->eager_bytes is 500");
  options = {};
  options.reserved[2] = 1;
  expect_refused(options, "options->reserved");
  expect_refused({}, "count is 65", 65);
  EXPECT_EQ(POLYPATH_INVALID_ARGUMENT, polypath_channel_create_all(comms_.data(), kRanks, nullptr,
                                                                   nullptr, 0, channels_.data()));
  EXPECT_EQ(POLYPATH_INVALID_ARGUMENT, polypath_channel_destroy(nullptr));
  for (polypath_comm* comm : comms_) EXPECT_EQ(POLYPATH_SUCCESS, polypath_comm_check(comm));
}

TEST_F(ChannelApi, RefusesWindowsOfAnotherCommunicator) {
  polypath_comm* alone = nullptr;
  polypath_symmetric* window = nullptr;
  const int gpu = 3;
  ASSERT_EQ(POLYPATH_SUCCESS, polypath_comm_create_all(context_, &gpu, 1, nullptr, &alone));
  ASSERT_EQ(POLYPATH_SUCCESS, polypath_comm_alloc(alone, 4096, &window));
  const std::vector<const polypath_symmetric*> windows(kRanks, window);
  const polypath_channel_options options{};
  EXPECT_EQ(POLYPATH_INVALID_ARGUMENT,
            polypath_channel_create_all(comms_.data(), kRanks, &options, windows.data(), 1,
                                        channels_.data()));
  EXPECT_THAT(polypath_last_error(), HasSubstr("one of windows is not memory of this communi"));
  polypath_comm_destroy(alone);
}

TEST_F(ChannelApi, RefusesWindowsOfEquallyLargeComm) {
  std::array<polypath_comm*, kRanks> others{};
  std::array<polypath_symmetric*, kRanks> windows{};
  ASSERT_EQ(POLYPATH_SUCCESS,
            polypath_comm_create_all(context_, nullptr, kRanks, nullptr, others.data()));
  ASSERT_EQ(POLYPATH_SUCCESS,
            polypath_comm_alloc_all(others.data(), kRanks, kBytes, windows.data()));
  const polypath_channel_options options{};
  EXPECT_EQ(POLYPATH_INVALID_ARGUMENT,
            polypath_channel_create_all(comms_.data(), kRanks, &options, windows.data(), 1,
                                        channels_.data()));
  EXPECT_THAT(polypath_last_error(), HasSubstr("one of windows is not memory of this communi"));
  for (polypath_comm* comm : others) polypath_comm_destroy(comm);
}

TEST_F(ChannelApi, RefusesWindowsInAnotherOrder) {
  std::array<polypath_symmetric*, kRanks> more{};
  ASSERT_EQ(POLYPATH_SUCCESS, polypath_comm_alloc_all(comms_.data(), kRanks, kBytes, more.data()));
  const polypath_channel_options options{};
  std::vector<const polypath_symmetric*> windows;
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    windows.push_back(rank == 2 ? more[rank] : windows_[rank]);
    windows.push_back(rank == 2 ? windows_[rank] : more[rank]);
  }
  EXPECT_EQ(POLYPATH_COMMUNICATOR_ERROR,
            polypath_channel_create_all(comms_.data(), kRanks, &options, windows.data(), 2,
                                        channels_.data()));
  EXPECT_THAT(polypath_last_error(), HasSubstr("windows of the ranks differ"));
}

TEST_F(ChannelApi, UnlikeOptions_AreRefusedOnAllRanks) {
  polypath_channel_options options{};
  polypath_channel_options other{};
  other.contexts = 2;
  std::array<polypath_status, kRanks> results{};
  std::vector<std::jthread> threads;
  for (std::size_t rank = 0; rank < kRanks; ++rank)
    threads.emplace_back([&, rank] {
      const polypath_symmetric* const window = windows_[rank];
      results[rank] = polypath_channel_create(comms_[rank], rank == 1 ? &other : &options, &window,
                                              1, &channels_[rank]);
    });
  threads.clear();
  for (const polypath_status each : results) EXPECT_EQ(POLYPATH_COMMUNICATOR_ERROR, each);
}

TEST_F(ChannelApi, MakesActiveMessages) {
  polypath_active_messages_options options{};
  options.argument_bytes = 32;
  options.shards = 4;
  std::array<polypath_active_messages*, kRanks> all{};
  ASSERT_EQ(POLYPATH_SUCCESS,
            polypath_active_messages_create_all(comms_.data(), kRanks, &options, all.data()))
      << polypath_last_error();
  for (int rank = 0; rank < kRanks; ++rank) {
    device::active_messages_view view{};
    ASSERT_EQ(POLYPATH_SUCCESS, polypath_active_messages_view(all[static_cast<std::size_t>(rank)],
                                                              &view, sizeof view));
    EXPECT_EQ(view.rank, static_cast<std::uint32_t>(rank));
    EXPECT_EQ(view.cell_bytes, 64U);
    EXPECT_EQ(view.shards(), 4U);
    EXPECT_EQ(view.capacity_log2, 9U);
    EXPECT_EQ(view.segment_log2, 6U);
  }
  EXPECT_EQ(POLYPATH_SUCCESS, polypath_active_messages_destroy_all(all.data(), kRanks));
  options.argument_bytes = 89;
  expect_refused(options, "options->argument_bytes is 89");
  options = {};
  options.shards = 3;
  expect_refused(options, "options->shards is 3");
  options = {};
  options.capacity = 64;
  expect_refused(options, "options->capacity is 64");
}

}  // namespace
}  // namespace polypath::test
