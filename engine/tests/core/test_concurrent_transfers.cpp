// Transfers of separate calls at the same time, on streams of their own, in virtual time: which
// routes carry them, and how long all take against native copies. Every transfer is verified.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "support/driver_extras.hpp"
#include "support/simulated_test.hpp"

namespace polypath::test {
namespace {

using testing::Each;

constexpr MemoryId kHost = MemoryId::host(0);
/// After the first round, which knows nothing.
constexpr int kRounds = 3;

class ConcurrentTransfers : public SimulatedTest {
 protected:
  void SetUp() override {
    SimulatedTest::SetUp();
    if (IsSkipped()) return;
    if (node().name != "hgx-h200-x4") GTEST_SKIP() << "of one node's routes";
    context_ = std::make_unique<Context>(source(), OptionArguments{{"profile", "off"}});
  }
  [[nodiscard]] double now_us() const {
    return driver_function<double()>(driver(), "polypath_sim_clock_us")();
  }
  /// Each pair with a stream of its own, on the GPU that copies natively.
  void open(const std::vector<std::pair<MemoryId, MemoryId>>& pairs,
            std::uint64_t bytes = kSplitBytes) {
    std::vector<Request> requests;
    for (const auto& [src, dst] : pairs) {
      add(payloads_, {src, dst, bytes});
      requests.push_back({src, dst, bytes});
      streams_.push_back(stream_on(src.is_gpu() ? src.index : dst.index));
    }
    context_->prepare(requests);
    for (const Request& request : requests) context_->prepare({request});
  }
  void open_loads(int gpus) {
    std::vector<std::pair<MemoryId, MemoryId>> pairs;
    for (int gpu = 0; gpu < gpus; ++gpu) pairs.emplace_back(kHost, MemoryId::gpu(gpu));
    open(pairs);
  }
  /// In which order calls are issued: the first of each stream, and so on; or all of a stream first.
  enum class Order : std::uint8_t { in_turns, by_stream };
  /// `depth` transfers on each stream, one call each; returns how long all took.
  template <typename Issue>
  double round(const Issue& issue, int depth, Order order) {
    for (Payload& payload : payloads_) payload.renew(random_());
    const double begin_us = now_us();
    const std::size_t pairs = payloads_.size();
    const std::size_t calls = pairs * static_cast<std::size_t>(depth);
    for (std::size_t i = 0; i < calls; ++i) {
      const std::size_t p =
          order == Order::in_turns ? i % pairs : i / static_cast<std::size_t>(depth);
      issue(payloads_[p].transfer(streams_[p].get()));
    }
    for (const Stream& stream : streams_) EXPECT_TRUE(completes(stream.get()));
    const double us = now_us() - begin_us;
    for (const Payload& payload : payloads_) EXPECT_TRUE(payload.arrived());
    return us;
  }
  double transfers_us(int depth = 1, Order order = Order::in_turns) {
    return round([&](const Transfer& transfer) { context_->copy_async(transfer); }, depth, order);
  }
  double native_us(int depth = 1, Order order = Order::in_turns) {
    PreparedPlan native;
    native.plan.transfers.resize(1);
    return round([&](const Transfer& transfer) { context_->follow({&transfer, 1}, native); }, depth,
                 order);
  }
  std::vector<double> settled_us(int depth = 1) {
    transfers_us(depth);
    std::vector<double> us;
    for (int i = 0; i < kRounds; ++i) us.push_back(transfers_us(depth));
    return us;
  }
  /// Transfers that follow each other without a pause, after some that still know of what ran
  /// together.
  void expect_as_if_alone() {
    for (int i = 0; i < 12; ++i) {
      for (Payload& payload : payloads_) payload.renew(random_());
      for (std::size_t p = 0; p < payloads_.size(); ++p) {
        const Traffic traffic(*context_);
        context_->copy_async(payloads_[p].transfer(streams_[p].get()));
        EXPECT_TRUE(completes(streams_[p].get()));
        if (i >= OwnTransfers::kMaxEarlier) {
          EXPECT_TRUE(traffic.went_as(context_->plan({payloads_[p].request()})));
        }
      }
      for (const Payload& payload : payloads_) EXPECT_TRUE(payload.arrived());
    }
  }
  [[nodiscard]] std::uint64_t bytes_via(const std::string& route) const {
    std::uint64_t bytes = 0;
    for (const auto& [key, count] : context_->counters().snapshot().routes)
      if (key.route == route) bytes += count.bytes;
    return bytes;
  }

  std::unique_ptr<Context> context_;
  std::deque<Payload> payloads_;
  std::deque<Stream> streams_;
};

TEST_F(ConcurrentTransfers, LoadsOfAllGpus_AreNative) {
  open_loads(4);
  for (const int depth : {1, 4}) {
    SCOPED_TRACE(depth);
    const double native = native_us(depth);
    transfers_us(depth);
    const Traffic traffic(*context_);
    for (int i = 0; i < kRounds; ++i) EXPECT_LE(transfers_us(depth), 1.001 * native);
    EXPECT_EQ(traffic.split(), 0u);
    EXPECT_EQ(traffic.native(NativeReason::links_in_use),
              static_cast<std::uint64_t>(kRounds * 4 * depth));
  }
}

TEST_F(ConcurrentTransfers, QueuedStreamByStream_AreNative) {
  open_loads(4);
  constexpr int kDepth = 24;
  const double native = native_us(kDepth, Order::by_stream);
  transfers_us(kDepth, Order::by_stream);
  const Traffic traffic(*context_);
  EXPECT_LE(transfers_us(kDepth, Order::by_stream), 1.001 * native);
  EXPECT_EQ(traffic.split(), 0u);
}

class ConcurrentByExecutor : public ConcurrentTransfers,
                             public testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(Executors, ConcurrentByExecutor, testing::Values("stream", "graph"),
                         [](const auto& each) { return std::string(each.param); });

TEST_P(ConcurrentByExecutor, LoadsOfSomeGpus_ShareLinksOfOthers) {
  context_ = std::make_unique<Context>(
      source(), OptionArguments{{"profile", "off"}, {"executor", GetParam()}});
  open_loads(2);
  const double native = native_us();
  transfers_us();
  const std::uint64_t via_own = bytes_via("via gpu0") + bytes_via("via gpu1");
  const Traffic traffic(*context_);
  for (int i = 0; i < kRounds; ++i) EXPECT_LT(transfers_us(), 0.75 * native);
  EXPECT_EQ(traffic.split(), 2u * kRounds);
  EXPECT_EQ(bytes_via("via gpu0") + bytes_via("via gpu1"), via_own)
      << "took the link of the other transfer";
}

TEST_F(ConcurrentTransfers, NeverSlowerThanNativeCopies) {
  const MemoryId gpu[]{MemoryId::gpu(0), MemoryId::gpu(1), MemoryId::gpu(2), MemoryId::gpu(3)};
  const std::vector<std::vector<std::pair<MemoryId, MemoryId>>> cases{
      {{kHost, gpu[0]}, {kHost, gpu[1]}, {kHost, gpu[2]}},
      {{kHost, gpu[0]}, {gpu[0], kHost}},
      {{gpu[0], kHost}, {gpu[1], kHost}},
      {{gpu[0], gpu[1]}, {gpu[1], gpu[0]}},
      {{gpu[0], gpu[2]}, {gpu[1], gpu[3]}},
      {{gpu[0], gpu[1]}, {gpu[1], gpu[2]}, {gpu[2], gpu[3]}, {gpu[3], gpu[0]}},
      {{gpu[0], gpu[1]}, {kHost, gpu[2]}}};
  for (std::size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "case " << i);
    payloads_.clear();
    streams_.clear();
    // The transfers of the case before are forgotten.
    driver_function<void(double)>(driver(), "polypath_sim_advance_us")(2e6);
    open(cases[i]);
    for (const int depth : {1, 3}) {
      const double native = native_us(depth);
      EXPECT_THAT(settled_us(depth), Each(testing::Le(1.002 * native)));
    }
  }
}

/// The plan gains little, and the other way begins later by the time to issue it. Where both streams
/// have work queued, no call waits for the CPU.
TEST_F(ConcurrentTransfers, SmallGain_OnlyWhereWorkIsQueued) {
  open({{MemoryId::gpu(0), MemoryId::gpu(1)}, {MemoryId::gpu(1), MemoryId::gpu(0)}}, 256 * kMiB);
  settled_us();
  const Traffic once(*context_);
  transfers_us();
  EXPECT_EQ(once.native(NativeReason::links_in_use), 2u);
  const Traffic queued(*context_);
  transfers_us(3);
  EXPECT_EQ(queued.native(NativeReason::links_in_use), 2u);
  EXPECT_EQ(queued.split(), 4u);
}

/// What ran together before does not hold back transfers that now follow each other.
TEST_F(ConcurrentTransfers, Successive_GoAsIfAlone) {
  open_loads(2);
  transfers_us();
  transfers_us();
  expect_as_if_alone();
}

/// A node that was never measured: its plans predict other times than transfers take.
class ConcurrentByWrongRates : public ConcurrentTransfers,
                               public testing::WithParamInterface<double> {
 protected:
  void SetUp() override {
    ConcurrentTransfers::SetUp();
    if (IsSkipped()) return;
    NodeSource wrong = source();
    for (Link& link : wrong.node.links) link.gbps *= GetParam();
    for (Port& port : wrong.node.ports) port.gbps *= GetParam();
    context_ = std::make_unique<Context>(std::move(wrong), OptionArguments{{"profile", "off"}});
  }
};
INSTANTIATE_TEST_SUITE_P(Rates, ConcurrentByWrongRates, testing::Values(0.6, 1.6),
                         [](const auto& each) { return each.param < 1 ? "low" : "high"; });

TEST_P(ConcurrentByWrongRates, AtTheSameTime_AreNotSlower) {
  open_loads(4);
  for (const int depth : {1, 4}) {
    const double native = native_us(depth);
    EXPECT_THAT(settled_us(depth), Each(testing::Le(1.002 * native)));
  }
}

TEST_P(ConcurrentByWrongRates, Successive_GoAsIfAlone) {
  open_loads(2);
  expect_as_if_alone();
}

TEST_F(ConcurrentTransfers, WithoutLoad_ArePlannedAlone) {
  context_ =
      std::make_unique<Context>(source(), OptionArguments{{"profile", "off"}, {"load", "off"}});
  open_loads(4);
  const Traffic traffic(*context_);
  for (int i = 0; i < 3; ++i) transfers_us();
  EXPECT_EQ(traffic.split(), 12u);
}

}  // namespace
}  // namespace polypath::test
