// Channels between simulated GPUs: every message to the receive that MPI's rule gives it, whole;
// and what these tests are worth: each defect of channel_mutant is found.
#include <gtest/gtest.h>

#include "case_of.hpp"
#include "channel_script.hpp"
#include "polypath/device/detail/channel_lists.cuh"
#include "polypath/device/status.hpp"
#include "simt/run.hpp"

namespace polypath::test {
namespace {

using device::channel_mutant;

class Channels : public testing::TestWithParam<ChannelCase> {};

TEST_P(Channels, MatchAsMpiSays) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed)
    ASSERT_EQ(ChannelScript(GetParam(), seed).run(), "") << seed;
}

constexpr ChannelCase kChannelCases[] = {
    {.name = "warps_of_two", .members = Members::warp, .shape = {.ranks = 2}, .messages = 20},
    {.name = "small_rings",
     .members = Members::warp,
     .shape = {.ranks = 2, .units_log2 = 4, .eager_bytes = 60},
     .messages = 24},
    {.name = "blocks_of_three",
     .members = Members::block,
     .shape = {.ranks = 3, .contexts = 2},
     .messages = 12},
    {.name = "any_source",
     .members = Members::warp,
     .shape = {.ranks = 3},
     .messages = 16,
     .any_sources = true},
    {.name = "alone", .members = Members::warp, .shape = {.ranks = 1}, .messages = 12},
    {.name = "small_alone",
     .members = Members::warp,
     .shape = {.ranks = 2, .units_log2 = 4, .eager_bytes = 60},
     .messages = 24,
     .max_bytes = 60},
    {.name = "mostly_large",
     .members = Members::block,
     .shape = {.ranks = 2, .eager_bytes = 4},
     .messages = 24},
};
INSTANTIATE_TEST_SUITE_P(Channel, Channels, testing::ValuesIn(kChannelCases),
                         [](const auto& at) { return at.param.name; });

struct ChannelFaultCase {
  channel_mutant fault;
  const char* found_by;  ///< a name of kChannelCases
};

class ChannelMutant : public testing::TestWithParam<ChannelFaultCase> {
 protected:
  void TearDown() override { active_mutant<channel_mutant> = channel_mutant::none; }
};

TEST_P(ChannelMutant, MakesRunsFail) {
  active_mutant<channel_mutant> = GetParam().fault;
  int failures = 0;
  for (std::uint64_t seed = 1; seed <= 300 && failures < 2; ++seed)
    failures +=
        ChannelScript(case_of(kChannelCases, GetParam().found_by), seed).run().empty() ? 0 : 1;
  EXPECT_GE(failures, 2) << "of 300 seeds";
}

INSTANTIATE_TEST_SUITE_P(
    Channel, ChannelMutant,
    testing::Values(ChannelFaultCase{channel_mutant::no_credit, "small_alone"},
                    ChannelFaultCase{channel_mutant::unexpected_forgotten, "small_alone"},
                    ChannelFaultCase{channel_mutant::part_of_a_message, "warps_of_two"},
                    ChannelFaultCase{channel_mutant::announced_before_the_bytes, "mostly_large"},
                    ChannelFaultCase{channel_mutant::no_fence_behind_the_bytes, "mostly_large"},
                    ChannelFaultCase{channel_mutant::no_acquire, "warps_of_two"},
                    ChannelFaultCase{channel_mutant::sends_overtake, "small_rings"},
                    ChannelFaultCase{channel_mutant::last_posted_first, "warps_of_two"},
                    ChannelFaultCase{channel_mutant::last_arrived_first, "warps_of_two"}));

/// Calls of rank 0 alone, one after another.
class ChannelOfOne : public testing::Test {
 protected:
  explicit ChannelOfOne(const ChannelShape& shape = {.ranks = 2,
                                                     .units_log2 = 4,
                                                     .eager_bytes = 60})
      : memory_(shape, 4096) {}
  void run(const std::vector<ChannelOp>& calls, std::uint32_t contexts = 1) {
    calls_.assign(kMaxRequests * std::size_t{contexts}, {});
    for (ChannelOp& each : calls_) each = {ChannelCall::test, 0, 0, kMaxRequests - 1, 0, nullptr};
    for (std::size_t i = 0; i < calls_.size(); ++i)
      if (i % kMaxRequests < calls.size()) calls_[i] = calls[i % kMaxRequests];
    results_.assign(calls_.size(), {99, 99, 99, 99, 0});
    requests_.assign(calls_.size(), {});
    const ChannelRow row{memory_.view(0),
                         Members::warp,
                         kMaxRequests,
                         0,
                         static_cast<std::uint32_t>(calls.size()),
                         calls_.data(),
                         requests_.data(),
                         results_.data()};
    simt::RunOptions options;
    options.max_steps = 20'000'000;
    ASSERT_EQ(simt::run({{simt::launch("polypath_test_channel", 0, contexts, 64, row)}}, options),
              "");
  }
  [[nodiscard]] device::status status(std::size_t request) const {
    return static_cast<device::status>(results_[request].status);
  }

  ChannelMemory memory_;
  std::vector<ChannelOp> calls_;
  std::vector<ChannelResult> results_;
  std::vector<device::request> requests_;
};
constexpr auto kUntold = static_cast<device::status>(99);

TEST_F(ChannelOfOne, RefusesWhatCannotBeByName) {
  unsigned char* const in = memory_.window(0);
  std::vector<unsigned char> out(4096, 0xA5);
  run({{ChannelCall::send, 2, 1, 0, 4, in},
       {ChannelCall::receive, 2, 1, 1, 4, in},
       {ChannelCall::send, 1, 0x80000000, 2, 4, in},
       {ChannelCall::receive, 1, 0x80000000, 3, 4, in},
       {ChannelCall::receive, 1, 1, 4, 61, out.data()},
       {ChannelCall::receive, 1, 1, 5, 60, out.data()},
       {ChannelCall::receive, 1, 1, 6, 4096, in},
       {ChannelCall::receive, 1, 1, 7, 4096, in + 1}});
  using device::status;
  const status expected[] = {status::bad_rank, status::bad_rank,   status::bad_tag,
                             status::bad_tag,  status::bad_buffer, kUntold,
                             kUntold,          status::bad_buffer};
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(this->status(i), expected[i]) << i;
}

TEST_F(ChannelOfOne, KnowsItsRequests) {
  unsigned char* const in = memory_.window(0);
  // To itself; a request is told to be done once.
  run({{ChannelCall::receive, 0, 1, 0, 8, in},
       {ChannelCall::send, 0, 1, 1, 8, in + 100},
       {ChannelCall::wait, 0, 0, 0, 0, in}});
  EXPECT_EQ(status(0), device::status::done);
  run({{ChannelCall::receive, 0, 1, 0, 8, in},
       {ChannelCall::send, 0, 1, 1, 8, in + 100},
       {ChannelCall::wait, 0, 0, 0, 0, in},
       {ChannelCall::wait, 0, 0, 0, 0, in}});
  EXPECT_EQ(status(0), device::status::bad_request);
}

TEST_F(ChannelOfOne, TellsNoRequestWhatBecameOfTheOneBefore) {
  unsigned char* const in = memory_.window(0);
  run({{ChannelCall::receive, 0, 1, 0, 4, in},
       {ChannelCall::send, 0, 1, 1, 8, in + 100},
       {ChannelCall::wait, 0, 0, 0, 0, nullptr},
       {ChannelCall::send, 0, 2, 2, 100, in + 200},  // in the slot of the first
       {ChannelCall::receive, 0, 2, 3, 100, in + 400},
       {ChannelCall::wait, 0, 0, 2, 0, nullptr},
       {ChannelCall::wait, 0, 0, 3, 0, nullptr}});
  EXPECT_EQ(status(0), device::status::truncated);
  EXPECT_EQ(status(2), device::status::done);
  EXPECT_EQ(status(3), device::status::done);
}

TEST_F(ChannelOfOne, SaysThatItsRequestsAreAll) {
  std::vector<ChannelOp> calls;
  for (std::uint32_t i = 0; i < kMaxRequests; ++i)
    calls.push_back({ChannelCall::receive, 1, 7, i, 4, memory_.window(0) + 8 * i});
  run(calls);  // 64 of them
  for (std::size_t i = 0; i < kMaxRequests; ++i) EXPECT_EQ(status(i), kUntold);
  run({{ChannelCall::receive, 1, 7, 3, 4, memory_.window(0)}});
  EXPECT_EQ(status(3), device::status::full);
}

TEST_F(ChannelOfOne, KeepsAContextForOneGroup) {
  *reinterpret_cast<std::uint64_t*>(memory_.view(0).local + memory_.view(0).table_bytes() +
                                    device::channel_view::kInUse) = 1;
  run({{ChannelCall::send, 1, 1, 0, 4, memory_.window(0)}});
  EXPECT_EQ(status(0), device::status::in_use);
}

TEST_F(ChannelOfOne, OtherContext_IsRefused) {
  run({{ChannelCall::send, 1, 1, 0, 4, memory_.window(0)}}, 2);
  EXPECT_EQ(status(kMaxRequests), device::status::bad_context);
}

TEST_F(ChannelOfOne, EndsItsWaitsWithTheTimeLimit) {
  // A receive without a send; sends to a rank that does not receive: two of six units fit.
  unsigned char* const in = memory_.window(0);
  run({{ChannelCall::receive, 1, 7, 0, 4, in}, {ChannelCall::wait, 0, 0, 0, 0, in}});
  EXPECT_EQ(status(0), device::status::aborted);
  EXPECT_EQ(memory_.wait_ctx(0).status.reason, device::wait_error::time_limit);
  EXPECT_EQ(memory_.wait_ctx(0).status.offset, 53U) << "the number of the channel";
}

TEST_F(ChannelOfOne, SenderStopsMidway_EndsTheWait) {
  const device::channel_view& view = memory_.view(0);
  auto* const ring = reinterpret_cast<device::ll_packet*>(view.local + view.table_bytes() +
                                                          view.rings() + view.ring_bytes());
  *ring = {{7, 60, 0}, 1};  // the first unit of six
  run({{ChannelCall::blocking_receive, 1, 7, 0, 60, memory_.window(0)}});
  EXPECT_EQ(status(0), device::status::aborted);
  EXPECT_EQ(memory_.wait_ctx(0).status.reason, device::wait_error::time_limit);
}

TEST_F(ChannelOfOne, NoReceive_OverwritesNothing) {
  unsigned char* const in = memory_.window(0);
  run({{ChannelCall::send, 1, 7, 0, 60, in},
       {ChannelCall::send, 1, 7, 1, 60, in},
       {ChannelCall::send, 1, 7, 2, 60, in},
       {ChannelCall::wait, 0, 0, 1, 0, nullptr},
       {ChannelCall::wait, 0, 0, 2, 0, nullptr}});
  EXPECT_EQ(status(1), device::status::done);
  EXPECT_EQ(status(2), device::status::aborted);
}

TEST_F(ChannelOfOne, EndsItsWaitsWithAnAbort) {
  memory_.wait_ctx(0).abort_flag = 1;
  unsigned char* const in = memory_.window(0);
  run({{ChannelCall::receive, 1, 7, 0, 4, in}, {ChannelCall::wait, 0, 0, 0, 0, in}});
  EXPECT_EQ(status(0), device::status::aborted);
  EXPECT_EQ(memory_.wait_ctx(0).status.reason, device::wait_error::aborted);
}

TEST_F(ChannelOfOne, EndsItsTestsWithAnAbortAlone) {
  unsigned char* const in = memory_.window(0);
  run({{ChannelCall::receive, 1, 7, 0, 4, in}, {ChannelCall::poll, 0, 0, 0, 0, nullptr}});
  EXPECT_EQ(status(0), device::status::in_progress);
  memory_.wait_ctx(0).abort_flag = 1;
  run({{ChannelCall::receive, 1, 8, 0, 4, in}, {ChannelCall::poll, 0, 0, 0, 0, nullptr}});
  EXPECT_EQ(status(0), device::status::aborted);
  EXPECT_EQ(memory_.wait_ctx(0).status.reason, device::wait_error::aborted);
}
TEST_F(ChannelOfOne, EndsItsProgressWithAnAbort) {
  memory_.wait_ctx(0).abort_flag = 1;
  // Without a request: what is under way is carried on, and nothing is waited for.
  std::vector<ChannelOp> calls(kMaxRequests,
                               ChannelOp{ChannelCall::test, 0, 0, kMaxRequests - 1, 0, nullptr});
  run(calls);
  EXPECT_EQ(status(kMaxRequests - 1), device::status::aborted);
}

/// Calls that wait, by two ranks. Small messages that come in order go past the lists, others not.
TEST(ChannelCalls, ReceiveAtOnceWhatIsNext) {
  constexpr std::uint32_t kSizes[] = {8, 60, 0, 3, 61, 8, 2000, 12, 7, 59};
  constexpr std::size_t kCount = std::size(kSizes);
  for (const Members members : {Members::warp, Members::block})
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      ChannelMemory memory({.ranks = 2, .units_log2 = 4, .eager_bytes = 60}, 65536);
      std::vector<std::vector<ChannelOp>> calls(2);
      std::vector<std::vector<ChannelResult>> results(
          2, std::vector<ChannelResult>(kMaxRequests, {99, 99, 99, 99, 0}));
      std::vector<std::vector<device::request>> requests(
          2, std::vector<device::request>(kMaxRequests));
      for (std::uint32_t i = 0; i < kCount; ++i) {
        unsigned char* const from = memory.window(0) + std::size_t{4096} * i;
        for (std::uint32_t at = 0; at < kSizes[i]; ++at)
          from[at] = static_cast<unsigned char>(seed * 37 + i * 11 + at * 5);
        calls[0].push_back({ChannelCall::send, 1, i, i, kSizes[i], from});
      }
      for (std::uint32_t i = 0; i < kCount; ++i)
        calls[0].push_back({ChannelCall::wait, 0, 0, i, 0, nullptr});
      // Two change places, one is for any tag, one is too short.
      const std::uint32_t order[] = {0, 2, 1, 3, 4, 5, 6, 8, 7, 9};
      for (const std::uint32_t i : order)
        calls[1].push_back({ChannelCall::blocking_receive, 0, i == 3 ? device::any_tag : i, i,
                            i == 9 ? 30U : kSizes[i], memory.window(1) + std::size_t{4096} * i});
      std::vector<std::vector<simt::Launch>> rows;
      for (std::uint32_t rank = 0; rank < 2; ++rank) {
        const ChannelRow row{memory.view(rank),
                             members,
                             kMaxRequests,
                             0,
                             static_cast<std::uint32_t>(calls[rank].size()),
                             calls[rank].data(),
                             requests[rank].data(),
                             results[rank].data()};
        rows.push_back({simt::launch("polypath_test_channel", static_cast<int>(rank), 1, 64, row)});
      }
      simt::RunOptions options;
      options.seed = seed;
      ASSERT_EQ(simt::run(rows, options), "") << seed;
      for (std::uint32_t i = 0; i < kCount; ++i) {
        const auto expected = i == 9 ? device::status::truncated : device::status::done;
        EXPECT_EQ(results[1][i].status, static_cast<std::uint32_t>(expected)) << i;
        EXPECT_EQ(results[1][i].tag, i);
        const std::uint32_t bytes = i == 9 ? 30 : kSizes[i];
        EXPECT_EQ(results[1][i].bytes, bytes) << i;
        const unsigned char* const from = memory.window(0) + std::size_t{4096} * i;
        std::uint32_t sum = 0;
        for (std::uint32_t at = 0; at < bytes; ++at) sum += (from[at] + 1U) * (at * 2 + kSumFactor);
        EXPECT_EQ(results[1][i].sum, sum) << i;
        const unsigned char* const to = memory.window(1) + std::size_t{4096} * i;
        for (std::uint32_t at = 0; at < 4000; ++at)
          ASSERT_EQ(to[at], at < bytes ? from[at] : 0xA5) << i << " " << at;
      }
    }
}

/// Room for four unexpected messages: what comes after stays with its sender.
class FewUnexpected : public ChannelOfOne {
 protected:
  FewUnexpected()
      : ChannelOfOne({.ranks = 1, .units_log2 = 4, .unexpected_log2 = 2, .eager_bytes = 60}) {}
};
TEST_F(FewUnexpected, HoldBackTheirSender) {
  unsigned char* const in = memory_.window(0);
  std::vector<ChannelOp> calls;
  for (std::uint32_t i = 0; i < 24; ++i)
    calls.push_back({ChannelCall::send, 0, i, i, 4, in + 16 * i});
  for (std::uint32_t i = 0; i < 24; ++i) {
    calls.push_back({ChannelCall::receive, 0, i, 24 + i % 8, 4, in + 1024 + 16 * i});
    if (i == 15) calls.push_back({ChannelCall::wait, 0, 0, 24 + 15 % 8, 0, in + 1024 + 16 * 15});
  }
  for (std::uint32_t i = 0; i < 24; ++i) std::fill_n(in + 16 * i, 4, static_cast<unsigned char>(i));
  calls.push_back({ChannelCall::wait, 0, 0, 24 + 23 % 8, 0, in + 1024 + 16 * 23});
  run(calls);
  EXPECT_EQ(status(24 + 23 % 8), device::status::done);
  for (std::uint32_t i = 0; i < 24; ++i) EXPECT_EQ(in[1024 + 16 * i], i) << i;
}

}  // namespace
}  // namespace polypath::test
