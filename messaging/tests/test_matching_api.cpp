// The C API of matching on a simulated node: one batch, many queues, batches that carry over.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "matching_gpu.hpp"

namespace polypath::test {
namespace {

using testing::HasSubstr;

TEST_F(MatchingApi, SingleQueue_EqualsReference) {
  create(4096);
  for (const TrafficCase& each : kTraffic)
    for (const std::uint32_t times : {1U, 15U}) {
      TrafficCase test_case = each;
      test_case.messages *= times;
      test_case.receives *= times;
      const Traffic traffic = draw(test_case, times);
      const Outcome result = match(traffic);
      ASSERT_EQ(result.outcome.status, POLYPATH_MATCH_DONE) << test_case.name;
      ASSERT_EQ(result.matched_message, match_literally(traffic, times)) << test_case.name << times;
      EXPECT_EQ(result.outcome.matches + result.outcome.unmatched_receives, test_case.receives);
      EXPECT_EQ(result.outcome.matches + result.outcome.unmatched_messages, test_case.messages);
    }
}

TEST_F(MatchingApi, FullBatchesOfBothSizes) {
  for (const std::uint32_t capacity : {1024U, 3000U}) {
    create(capacity);
    for (const std::uint32_t percent : {0U, 10U}) {
      const Traffic traffic = draw({"", capacity, capacity, 16, 64, 1, percent, percent}, capacity);
      EXPECT_EQ(match(traffic).matched_message, match_literally(traffic, 1));
    }
    Traffic one_key = draw({"", capacity, capacity, 1, 1, 1, 10, 10}, capacity);
    EXPECT_EQ(match(one_key).matched_message, match_literally(one_key, 1));
    Traffic long_chain = chain(capacity / 2);
    EXPECT_EQ(match(long_chain).matched_message, match_literally(long_chain, 1));
  }
}

TEST_F(MatchingApi, ByPhasesIsARowOfLaunches) {
  const Traffic traffic = draw({"", 1500, 1400, 16, 16, 1, 5, 5}, 3);
  for (const polypath_match_order order : {POLYPATH_ORDER_MPI, POLYPATH_ORDER_NO_ANY_SOURCE}) {
    const Traffic batch = order == POLYPATH_ORDER_MPI ? traffic : draw({"", 1500, 1400, 16, 16}, 3);
    create(2000, order, 1);
    EXPECT_EQ(match(batch).matched_message, match_literally(batch, 3));
    char* json = nullptr;
    EXPECT_OK(polypath_matcher_report(matcher_, &json));
    EXPECT_THAT(json, testing::ContainsRegex("\"launches\":1[0-9]"));
    polypath_free_string(json);
  }
}

TEST_F(MatchingApi, ManyQueuesHaveNothingToDoWithEachOther) {
  create(2000);
  std::vector<Traffic> queues;
  std::uint64_t seed = 0;
  for (const TrafficCase& each : kTraffic) queues.push_back(draw(each, ++seed));
  queues.push_back(draw({"", 1025, 5, 4, 4}, 1));  // too many for one of many
  queues.push_back({{{0x80000000, 1, 1}}, {{1, 1, 1}}});
  queues.push_back(draw({"", 1024, 1024, 30, 30, 1, 3, 3}, 1));
  Traffic all;
  std::vector<std::uint32_t> message_begins{0};
  std::vector<std::uint32_t> receive_begins{0};
  for (const Traffic& each : queues) {
    all.messages.insert(all.messages.end(), each.messages.begin(), each.messages.end());
    all.receives.insert(all.receives.end(), each.receives.begin(), each.receives.end());
    message_begins.push_back(static_cast<std::uint32_t>(all.messages.size()));
    receive_begins.push_back(static_cast<std::uint32_t>(all.receives.size()));
  }
  const OnGpu messages(all.messages);
  const OnGpu receives(all.receives);
  const OnGpu first_messages(message_begins);
  const OnGpu first_receives(receive_begins);
  const OnGpu results(std::vector<std::uint32_t>(all.receives.size() + 1, kPoison));
  const OnGpu outcomes(std::vector<polypath_match_result>(queues.size()));
  EXPECT_OK(polypath_match_batched(matcher_, queues.size(), messages.get<polypath_envelope>(),
                                   first_messages.get(), receives.get<polypath_envelope>(),
                                   first_receives.get(), results.get(), outcomes.get(),
                                   streams_[0]));
  synchronize();
  const std::vector<std::uint32_t> matches = results.read();
  const std::vector<polypath_match_result> ends = outcomes.read();
  EXPECT_EQ(matches.back(), kPoison);
  for (std::size_t q = 0; q < queues.size(); ++q) {
    const std::uint32_t expected_status = q == std::size(kTraffic) ? POLYPATH_MATCH_FULL
                                          : q == std::size(kTraffic) + 1
                                              ? POLYPATH_MATCH_MESSAGE_TAG
                                              : POLYPATH_MATCH_DONE;
    EXPECT_EQ(ends[q].status, expected_status) << q;
    const std::vector<std::uint32_t> expected =
        expected_status == POLYPATH_MATCH_DONE
            ? match_literally(queues[q], q)
            : std::vector<std::uint32_t>(queues[q].receives.size(), kNone);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), matches.begin() + receive_begins[q]))
        << q;
  }
  char* json = nullptr;
  EXPECT_OK(polypath_matcher_report(matcher_, &json));
  EXPECT_THAT(json, HasSubstr("\"refused\":2"));
  polypath_free_string(json);
}

TEST_F(MatchingApi, BatchesCarryOverWhateverTheCut) {
  for (const std::uint32_t capacity : {300U, 1500U}) {
    create(capacity);
    unsigned turn = 0;
    for (const TrafficCase& each : kTraffic)
      for (std::uint64_t seed = 1; seed <= (capacity == 300U ? 3U : 1U); ++seed) {
        EXPECT_OK(polypath_matcher_reset(matcher_, streams_[turn % 2]));
        const Traffic traffic = draw(each, seed);
        // By streams in turn.
        const auto matches = carry(
            capacity, traffic, seed, [&](const auto& messages, const auto& receives, auto& pairs) {
              const Next result = next(messages, receives, capacity, ++turn % 2);
              EXPECT_EQ(result.outcome.status, POLYPATH_MATCH_DONE);
              EXPECT_TRUE(std::ranges::is_sorted(result.pairs, {}, &polypath_match_pair::receive));
              pairs.insert(pairs.end(), result.pairs.begin(), result.pairs.end());
            });
        EXPECT_EQ(matches, match_literally(traffic, seed));
        if (HasFailure()) FAIL() << each.name << " " << seed;
      }
  }
}

TEST_F(MatchingApi, RefusedBatch_ChangesNothing) {
  for (const std::uint32_t capacity : {200U, 1100U}) {
    create(capacity);
    const std::uint32_t left = capacity - 50;
    std::vector<envelope> messages(left, {5, 5, 5});
    Next result = next(messages, {}, capacity);
    EXPECT_EQ(result.outcome.unmatched_messages, left);
    // Fuller than its capacity.
    result = next(std::vector<envelope>(51, {5, 5, 5}), {{5, 5, 5}}, capacity);
    EXPECT_EQ(result.outcome.status, POLYPATH_MATCH_FULL);
    EXPECT_EQ(result.outcome.unmatched_messages, left);
    EXPECT_EQ(result.outcome.matches, 0U);
    // Out of range.
    result = next({{6, 6, 6}, {6, any_source, 6}}, {{5, 5, 5}}, capacity);
    EXPECT_EQ(result.outcome.status, POLYPATH_MATCH_MESSAGE_SOURCE);
    EXPECT_EQ(result.outcome.index, 1U);
    result = next({{6, 6, 6}}, {{5, 5, 5}, {5, 5, 5}, {0x80000001, 6, 6}}, capacity);
    EXPECT_EQ(result.outcome.status, POLYPATH_MATCH_RECEIVE_TAG);
    EXPECT_EQ(result.outcome.index, 2U);
    EXPECT_EQ(result.outcome.unmatched_messages, left);
    EXPECT_EQ(result.outcome.unmatched_receives, 0U);
    // Just full; and the numbers are those of what was taken.
    std::vector<envelope> last(50, {6, 6, 6});
    result = next(last, {{6, any_source, 6}, {7, 7, 7}, {any_tag, 5, 5}}, capacity);
    EXPECT_EQ(result.outcome.status, POLYPATH_MATCH_DONE);
    EXPECT_EQ(result.outcome.unmatched_messages, capacity - 2);
    EXPECT_EQ(result.outcome.unmatched_receives, 1U);
    ASSERT_EQ(result.pairs.size(), 2U);
    EXPECT_EQ(result.pairs[0].receive, 0U);
    EXPECT_EQ(result.pairs[0].message, left);
    EXPECT_EQ(result.pairs[1].receive, 2U);
    EXPECT_EQ(result.pairs[1].message, 0U);
  }
}

TEST_F(MatchingApi, OutOfRangeIsAStatus) {
  create(2000);
  for (const std::uint32_t count : {10U, 1500U}) {
    Traffic traffic = draw({"", count, count, 8, 8, 1, 5, 5}, 3);
    traffic.messages[7].tag = any_tag;
    const Outcome result = match(traffic);
    EXPECT_EQ(result.outcome.status, POLYPATH_MATCH_MESSAGE_TAG);
    EXPECT_EQ(result.outcome.index, 7U);
    EXPECT_EQ(result.matched_message, std::vector<std::uint32_t>(count, kNone));
  }
}

/// Batches that carry over one message or receive, and work that makes a stream late.
class LateBatches {
 public:
  explicit LateBatches(polypath_matcher* matcher) : matcher_(matcher) {
    EXPECT_EQ(CUDA_SUCCESS, cuMemAlloc(&memory_, kLong));
  }
  ~LateBatches() { EXPECT_EQ(CUDA_SUCCESS, cuMemFree(memory_)); }
  LateBatches(const LateBatches&) = delete;
  LateBatches& operator=(const LateBatches&) = delete;

  void keep_busy(CUstream stream) const {
    for (int i = 0; i < 8; ++i) EXPECT_EQ(CUDA_SUCCESS, cuMemsetD8Async(memory_, 1, kLong, stream));
  }
  /// `number`: 0 or 1, where its outcome is.
  void issue(std::size_t messages, std::size_t receives, std::size_t number,
             CUstream stream) const {
    EXPECT_OK(polypath_match_incremental(matcher_, one_.get<polypath_envelope>(), messages,
                                         one_.get<polypath_envelope>(), receives,
                                         pairs_.get() + number, outcomes_.get() + number, stream));
  }
  [[nodiscard]] std::uint64_t matches(std::size_t number) const {
    return outcomes_.read()[number].matches;
  }

 private:
  static constexpr std::size_t kLong = std::size_t{1} << 28;
  polypath_matcher* matcher_;
  const OnGpu<envelope> one_{std::vector<envelope>{{1, 1, 1}}};
  const OnGpu<polypath_match_pair> pairs_{std::vector<polypath_match_pair>(4, {kPoison, kPoison})};
  const OnGpu<polypath_match_result> outcomes_{std::vector<polypath_match_result>(2)};
  CUdeviceptr memory_ = 0;
};

/// One handle, and a stream of each thread: batches are in the order of their calls all the same.
TEST_F(MatchingApi, PerThreadStreams_KeepBatchOrder) {
  create(64);
  const LateBatches batches(matcher_);
  CUcontext context = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuCtxGetCurrent(&context));
  std::atomic<bool> is_issued{false};
  std::atomic<bool> may_end{false};
  std::jthread first([&] {
    EXPECT_EQ(CUDA_SUCCESS, cuCtxSetCurrent(context));
    batches.keep_busy(CU_STREAM_PER_THREAD);
    batches.issue(1, 0, 0, CU_STREAM_PER_THREAD);
    is_issued = true;
    while (!may_end) std::this_thread::yield();
    EXPECT_EQ(CUDA_SUCCESS, cuStreamSynchronize(CU_STREAM_PER_THREAD));
  });
  while (!is_issued) std::this_thread::yield();
  batches.issue(0, 1, 1, CU_STREAM_PER_THREAD);
  EXPECT_EQ(CUDA_SUCCESS, cuStreamSynchronize(CU_STREAM_PER_THREAD));
  may_end = true;
  first.join();
  EXPECT_EQ(batches.matches(0), 0U);
  EXPECT_EQ(batches.matches(1), 1U);
}

/// In the order of launches and calls, also if one of the two streams has work before.
TEST_F(MatchingApi, BatchesOfGraphsAreInOrder) {
  create(64);
  const LateBatches batches(matcher_);
  ASSERT_EQ(CUDA_SUCCESS, cuStreamBeginCapture(streams_[0], CU_STREAM_CAPTURE_MODE_RELAXED));
  batches.issue(1, 0, 0, streams_[0]);
  CUgraph graph = nullptr;
  CUgraphExec launchable = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuStreamEndCapture(streams_[0], &graph));
  ASSERT_EQ(CUDA_SUCCESS, cuGraphInstantiateWithFlags(&launchable, graph, 0));
  const auto launch = [&] { EXPECT_EQ(CUDA_SUCCESS, cuGraphLaunch(launchable, streams_[0])); };
  for (const unsigned is_busy : {0U, 1U}) {
    batches.keep_busy(streams_[is_busy]);
    // The first on the busy stream.
    if (is_busy == 0) {
      launch();
      batches.issue(0, 1, 1, streams_[1]);
    } else {
      batches.issue(0, 1, 1, streams_[1]);
      launch();
    }
    for (const CUstream stream : streams_) EXPECT_EQ(CUDA_SUCCESS, cuStreamSynchronize(stream));
    EXPECT_EQ(batches.matches(is_busy), 0U) << is_busy;
    EXPECT_EQ(batches.matches(1 - is_busy), 1U) << is_busy;
  }
  EXPECT_EQ(CUDA_SUCCESS, cuGraphExecDestroy(launchable));
  EXPECT_EQ(CUDA_SUCCESS, cuGraphDestroy(graph));
}

TEST_F(MatchingApi, ArgumentsAreLookedAt) {
  polypath_matcher* none = reinterpret_cast<polypath_matcher*>(1);
  polypath_matcher_options options{POLYPATH_ORDER_MPI, 64, 0, {}};
  EXPECT_REFUSED("comm is null", polypath_matcher_create(nullptr, &options, &none));
  EXPECT_EQ(none, nullptr);
  EXPECT_REFUSED("options is null", polypath_matcher_create(comm_, nullptr, &none));
  EXPECT_REFUSED("matcher is null", polypath_matcher_create(comm_, &options, nullptr));
  options.capacity = 0;
  EXPECT_REFUSED("capacity", polypath_matcher_create(comm_, &options, &none));
  options.capacity = (1U << 20) + 1;
  EXPECT_REFUSED("capacity", polypath_matcher_create(comm_, &options, &none));
  options = {9, 64, 0, {}};
  EXPECT_REFUSED("order is none", polypath_matcher_create(comm_, &options, &none));
  options = {POLYPATH_ORDER_MPI, 64, 2, {}};
  EXPECT_REFUSED("launch_per_phase", polypath_matcher_create(comm_, &options, &none));
  options = {POLYPATH_ORDER_MPI, 64, 0, {0, 1, 0}};
  EXPECT_REFUSED("reserved", polypath_matcher_create(comm_, &options, &none));
  create(64);
  const OnGpu words(std::vector<std::uint64_t>(64));
  const auto* const envelopes = words.get<polypath_envelope>();
  const auto* const odd =
      reinterpret_cast<const polypath_envelope*>(words.get<unsigned char>() + 4);
  auto* const results = words.get<std::uint32_t>();
  const auto refused = [&](const char* text, const polypath_envelope* messages, std::size_t count,
                           const polypath_envelope* receives, std::size_t receive_count,
                           std::uint32_t* to) {
    EXPECT_REFUSED(text, polypath_match(matcher_, messages, count, receives, receive_count, to,
                                        nullptr, streams_[0]));
  };
  refused("messages is null", nullptr, 1, envelopes, 1, results);
  refused("receives is null", envelopes, 1, nullptr, 1, results);
  refused("matched_message is null", envelopes, 1, envelopes, 1, nullptr);
  refused("messages is not aligned", odd, 1, envelopes, 1, results);
  refused("receive_count is more than 64", envelopes, 1, envelopes, 65, results);
  EXPECT_REFUSED("matcher is null",
                 polypath_match(nullptr, envelopes, 1, envelopes, 1, results, nullptr, nullptr));
  EXPECT_REFUSED("pairs is null", polypath_match_incremental(matcher_, envelopes, 1, envelopes, 1,
                                                             nullptr, nullptr, streams_[0]));
  EXPECT_REFUSED("message_begins",
                 polypath_match_batched(matcher_, 1, envelopes, nullptr, envelopes, results,
                                        results, nullptr, streams_[0]));
  EXPECT_OK(polypath_match_batched(matcher_, 0, nullptr, nullptr, nullptr, nullptr, nullptr,
                                   nullptr, streams_[0]));
  EXPECT_OK(polypath_matcher_destroy(nullptr));
}

}  // namespace
}  // namespace polypath::test
