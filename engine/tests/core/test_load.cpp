// Transfers next to the traffic of others, in virtual time: which routes carry them, and when they
// take loaded links again. Every transfer is verified.
#include <gtest/gtest.h>

#include "driver/fault_injection.hpp"
#include "stuck_events.hpp"
#include "support/driver_extras.hpp"
#include "support/simulated_test.hpp"
#include "tune/test_buffer.hpp"

namespace polypath::test {
namespace {

constexpr std::uint64_t kTransferBytes = 32 * kMiB;
/// Transfers next to traffic that may still take a loaded link: the one that finds out, and the one
/// that is issued before that is known.
constexpr int kLateTransfers = 3;

/// Halts the thread of chosen calls: right before the n-th copy, or a launch of a graph, from now
/// on. One at a time: entry points are plain functions.
class HaltedCalls {
 public:
  HaltedCalls(const CudaDriver& driver, std::function<void()> halt)
      : table_(std::make_shared<CudaDriver>(driver)) {
    state() = {.original = &driver, .halt = std::move(halt)};
    table_->memcpy_async = [](CUdeviceptr dst, CUdeviceptr src, std::size_t bytes,
                              CUstream stream) {
      if (++state().copies == state().halted_copy) state().halt();
      return state().original->memcpy_async(dst, src, bytes, stream);
    };
    table_->graph_launch = [](CUgraphExec graph, CUstream stream) {
      if (state().halted_copy > 0) state().halt();
      return state().original->graph_launch(graph, stream);
    };
  }
  HaltedCalls(const HaltedCalls&) = delete;
  HaltedCalls& operator=(const HaltedCalls&) = delete;
  /// 0: no more.
  void halt_copy(int nth) {
    state().copies = 0;
    state().halted_copy = nth;
  }
  [[nodiscard]] std::shared_ptr<const CudaDriver> driver() const { return table_; }

 private:
  struct State {
    const CudaDriver* original = nullptr;
    std::function<void()> halt;
    int copies = 0;
    int halted_copy = 0;
  };
  static State& state() {
    static State state;
    return state;
  }
  std::shared_ptr<CudaDriver> table_;
};

class LoadTest : public SimulatedTest {
 protected:
  void SetUp() override {
    SimulatedTest::SetUp();
    if (IsSkipped()) return;
    if (gpus() < 4 || node().name != tested_node()) GTEST_SKIP() << "of one node's routes";
  }
  [[nodiscard]] virtual std::string tested_node() const { return "hgx-h200-x4"; }
  void open(const OptionArguments& arguments, const std::vector<Request>& requests,
            NodeSource source) {
    context_ = std::make_unique<Context>(std::move(source), arguments);
    context_->prepare(requests);
  }
  void open(const OptionArguments& arguments, const std::vector<Request>& requests) {
    open(arguments, requests, source());
  }
  [[nodiscard]] double now_us() const {
    return driver_function<double()>(driver(), "polypath_sim_clock_us")();
  }
  void advance(double us) const {
    driver_function<void(double)>(driver(), "polypath_sim_advance_us")(us);
  }
  [[nodiscard]] Request request(MemoryId src, MemoryId dst) const {
    return {src, dst, kTransferBytes};
  }
  /// One transfer, verified; returns how long it took.
  double transfer(Payload& payload, CUstream stream) {
    payload.renew(random_());
    return transfer_now(payload, stream);
  }
  /// The same with contents that are there already: renewing them takes time of the node.
  double transfer_now(Payload& payload, CUstream stream) {
    const double begin = now_us();
    context_->copy_async(payload.transfer(stream));
    EXPECT_TRUE(completes(stream));
    const double us = now_us() - begin;
    EXPECT_TRUE(payload.arrived());
    return us;
  }
  /// Until some transfer goes as `plan` says.
  testing::AssertionResult comes_back(Payload& payload, CUstream stream, double within_us) {
    const Plan plan = context_->plan({payload.request()});
    for (const double begin = now_us(); now_us() - begin < within_us; advance(500)) {
      const Traffic traffic(*context_);
      transfer(payload, stream);
      if (traffic.went_as(plan)) return testing::AssertionSuccess();
    }
    return testing::AssertionFailure() << "not within " << within_us << " us";
  }
  /// Bytes of all transfers so far over a staged route.
  std::uint64_t bytes_via(const std::string& route) {
    std::uint64_t bytes = 0;
    for (const auto& [key, count] : context_->counters().snapshot().routes)
      if (key.route == route) bytes += count.bytes;
    return bytes;
  }

  static constexpr MemoryId kGpu0 = MemoryId::gpu(0);
  static constexpr MemoryId kGpu1 = MemoryId::gpu(1);
  static constexpr MemoryId kHost = MemoryId::host(0);
  std::unique_ptr<Context> context_;
};

TEST_F(LoadTest, IdleNode_NothingIsLeftOut) {
  open({}, {request(kGpu0, kGpu1)});
  Payload payload = this->payload({kGpu0, kGpu1, kTransferBytes});
  const Stream stream = stream_on(0);
  const Traffic traffic(*context_);
  for (int i = 0; i < 12; ++i) transfer(payload, stream.get());
  EXPECT_EQ(traffic.split(), 12u);
  EXPECT_EQ(traffic.excluded(ExclusionReason::loaded), 0u);
  EXPECT_EQ(context_->counters().snapshot().changed_by_load, 0u);
}

/// The system halts a thread between the direct copy and the staged ones, which then end late.
TEST_F(LoadTest, HaltedThread_IsNoLoad) {
  for (const char* const executor : {"stream", "graph"}) {
    SCOPED_TRACE(executor);
    HaltedCalls halted(driver(), [this] { advance(2'000); });
    NodeSource source = this->source();
    source.driver = halted.driver();
    open({{"executor", executor}}, {request(kGpu0, kGpu1)}, source);
    Payload payload = this->payload({kGpu0, kGpu1, kTransferBytes});
    const Stream stream = stream_on(0);
    transfer(payload, stream.get());
    const Traffic traffic(*context_);
    for (int i = 0; i < 6; ++i) {
      payload.renew(random_());
      halted.halt_copy(2);
      transfer_now(payload, stream.get());
      halted.halt_copy(0);
    }
    EXPECT_EQ(traffic.split(), 6u);
    EXPECT_EQ(traffic.excluded(ExclusionReason::loaded), 0u);
    context_.reset();
  }
}

TEST_F(LoadTest, BesideHostTraffic_GoesNatively) {
  open({}, {request(kGpu0, kGpu1)});
  Payload payload = this->payload({kGpu0, kGpu1, kTransferBytes});
  const Stream stream = stream_on(0);
  const double native_us = context_->plan({payload.request()}).native_us;
  for (const auto& [from, to] : {std::pair{"gpu0", "host0"}, std::pair{"host0", "gpu1"}}) {
    SCOPED_TRACE(std::string(from) + " to " + to);
    {
      const ForeignCopies foreign_copies(driver(), from, to);
      for (int i = 0; i < kLateTransfers; ++i) transfer(payload, stream.get());
      for (int i = 0; i < 4; ++i) {
        const Traffic traffic(*context_);
        const double us = transfer(payload, stream.get());
        EXPECT_TRUE(traffic.went_natively(NativeReason::links_loaded, kTransferBytes)) << i;
        EXPECT_LT(us, native_us / 0.9 + 60) << "completes() looks every 50 us";
      }
    }
    EXPECT_TRUE(comes_back(payload, stream.get(), 60'000));
  }
  EXPECT_GT(context_->counters().snapshot().changed_by_load, 0u);
}

TEST_F(LoadTest, HostToGpu_UsesRemainingLinks) {
  const auto gpu2 = MemoryId::gpu(2);
  open({}, {request(kHost, kGpu0)});
  Payload payload = this->payload({kHost, kGpu0, kTransferBytes});
  const Stream stream = stream_on(0);
  transfer(payload, stream.get());
  ASSERT_GT(bytes_via("via " + to_string(gpu2)), 0u);
  const ForeignCopies foreign_copies(driver(), "host0", "gpu2");
  for (int i = 0; i < kLateTransfers; ++i) transfer(payload, stream.get());
  const std::uint64_t loaded = bytes_via("via gpu2");
  const std::uint64_t free = bytes_via("via gpu1");
  for (int i = 0; i < 3; ++i) {
    const Traffic traffic(*context_);
    transfer(payload, stream.get());
    EXPECT_EQ(traffic.split(), 1u) << i;
  }
  EXPECT_EQ(bytes_via("via gpu2"), loaded);
  EXPECT_GT(bytes_via("via gpu1"), free);
}

/// A link that carries less, as its host memory is shared, and that no probe finds loaded.
TEST_F(LoadTest, SlowerLink_IsHeldBack) {
  open({}, {request(kGpu0, kGpu1)});
  Payload payload = this->payload({kGpu0, kGpu1, 2 * kTransferBytes});
  const Stream stream = stream_on(0);
  {
    const ForeignCopies foreign_copies(driver(), "gpu2", "host0");
    for (int i = 0; i < 2 * kLateTransfers; ++i) transfer(payload, stream.get());
    const Traffic traffic(*context_);
    transfer(payload, stream.get());
    EXPECT_TRUE(traffic.went_natively(NativeReason::links_loaded, 2 * kTransferBytes));
  }
  EXPECT_TRUE(comes_back(payload, stream.get(), 60'000));
}

TEST_F(LoadTest, Graphs_FollowTheLoad) {
  open({{"executor", "graph"}}, {request(kGpu0, kGpu1)});
  Payload payload = this->payload({kGpu0, kGpu1, kTransferBytes});
  const Stream stream = stream_on(0);
  transfer(payload, stream.get());
  EXPECT_EQ(context_->graph_counts().launches, 1u);
  {
    const ForeignCopies foreign_copies(driver(), "gpu0", "host0");
    for (int i = 0; i < kLateTransfers; ++i) transfer(payload, stream.get());
    const Traffic traffic(*context_);
    transfer(payload, stream.get());
    EXPECT_TRUE(traffic.went_natively(NativeReason::links_loaded, kTransferBytes));
  }
  const auto builds = context_->graph_counts().builds;
  EXPECT_TRUE(comes_back(payload, stream.get(), 60'000));
  EXPECT_EQ(context_->graph_counts().builds, builds) << "the old graph serves again";
}

TEST_F(LoadTest, BothWays_GoNatively) {
  NodeSource measured = source();
  measured.node.costs.staged_fixed_us = 1;  // then plans split both ways at this size
  open({}, {request(kGpu0, kGpu1), request(kGpu1, kGpu0)}, std::move(measured));
  std::deque<Payload> payloads;
  add(payloads, {kGpu0, kGpu1, kTransferBytes});
  add(payloads, {kGpu1, kGpu0, kTransferBytes});
  const Stream first = stream_on(0);
  const Stream second = stream_on(1);
  const auto both = [&] {
    for (Payload& payload : payloads) payload.renew(random_());
    const std::vector<Transfer> group{payloads[0].transfer(first.get()),
                                      payloads[1].transfer(second.get())};
    context_->group_copy_async(group);
    EXPECT_TRUE(completes(first.get()));
    EXPECT_TRUE(completes(second.get()));
    for (const Payload& payload : payloads) EXPECT_TRUE(payload.arrived());
  };
  const Traffic before(*context_);
  both();
  ASSERT_EQ(before.split(), 2u);
  const ForeignCopies foreign_copies(driver(), "gpu1", "host0");
  for (int i = 0; i < kLateTransfers; ++i) both();
  const Traffic traffic(*context_);
  for (int i = 0; i < 2; ++i) both();
  EXPECT_EQ(traffic.native(NativeReason::links_loaded), 4u);
}

TEST_F(LoadTest, OwnCopiesOfAnotherStream_CountAtOnce) {
  open({}, {request(kGpu0, kGpu1)});
  Payload payload = this->payload({kGpu0, kGpu1, kTransferBytes});
  const Payload copy = this->payload({kGpu0, kHost, kTransferBytes});
  const Stream stream = stream_on(0);
  const Stream other = stream_on(0);
  {
    const Traffic traffic(*context_);
    transfer(payload, stream.get());
    ASSERT_EQ(traffic.split(), 1u);
  }
  payload.renew(random_());
  const Transfer native = copy.transfer(other.get());
  POLYPATH_CHECK(driver(), memcpy_async(native.dst, native.src, native.bytes, native.stream));
  context_->load().note_copy(native.dst, native.src, native.bytes, native.stream);
  {
    const Traffic traffic(*context_);
    transfer_now(payload, stream.get());
    EXPECT_TRUE(traffic.went_natively(NativeReason::links_loaded, kTransferBytes));
  }
  EXPECT_TRUE(completes(other.get()));
  EXPECT_TRUE(copy.arrived());
  advance(2000);
  const Traffic traffic(*context_);
  transfer(payload, stream.get());
  EXPECT_EQ(traffic.split(), 1u);
}

TEST_F(LoadTest, OwnCopiesOfTheSameStream_DoNotCount) {
  open({}, {request(kGpu0, kGpu1)});
  Payload payload = this->payload({kGpu0, kGpu1, kTransferBytes});
  const Payload copy = this->payload({kGpu0, kHost, kTransferBytes});
  const Stream stream = stream_on(0);
  payload.renew(random_());
  const Transfer native = copy.transfer(stream.get());
  POLYPATH_CHECK(driver(), memcpy_async(native.dst, native.src, native.bytes, native.stream));
  context_->load().note_copy(native.dst, native.src, native.bytes, native.stream);
  const Traffic traffic(*context_);
  transfer_now(payload, stream.get());
  EXPECT_EQ(traffic.split(), 1u);
  EXPECT_TRUE(copy.arrived());
}

TEST_F(LoadTest, SwitchedOff_NothingIsLeftOut) {
  open({{"load", "off"}}, {request(kGpu0, kGpu1)});
  Payload payload = this->payload({kGpu0, kGpu1, kTransferBytes});
  const Stream stream = stream_on(0);
  const ForeignCopies foreign_copies(driver(), "gpu0", "host0");
  const Traffic traffic(*context_);
  for (int i = 0; i < 5; ++i) transfer(payload, stream.get());
  EXPECT_EQ(traffic.split(), 5u);
}

TEST_F(LoadTest, MeasuredAnew_ForgetsLoad) {
  open({}, {request(kGpu0, kGpu1)});
  Payload payload = this->payload({kGpu0, kGpu1, kTransferBytes});
  const Stream stream = stream_on(0);
  {
    const ForeignCopies foreign_copies(driver(), "gpu0", "host0");
    for (int i = 0; i <= kLateTransfers; ++i) transfer(payload, stream.get());
    const Traffic traffic(*context_);
    transfer(payload, stream.get());
    ASSERT_TRUE(traffic.went_natively(NativeReason::links_loaded, kTransferBytes));
  }
  advance(10'000);
  context_->load().use(node());
  const Traffic traffic(*context_);
  transfer(payload, stream.get());
  EXPECT_EQ(traffic.split(), 1u);
}

TEST_F(LoadTest, ReusedAddress_CountsWhereItLiesNow) {
  constexpr MemoryId gpu2 = MemoryId::gpu(2);
  const TestBuffer host(driver(), node(), kHost, kTransferBytes);
  const TestBuffer freed(driver(), node(), kGpu0, kTransferBytes);
  const TestBuffer later(driver(), node(), gpu2, kTransferBytes);
  // The simulated node gives no address twice soon: from some time on the driver says of the first
  // buffer's what it says of the second one's.
  static const CudaDriver* original = nullptr;
  static CUdeviceptr reused = 0;
  static CUdeviceptr stands_for = 0;
  original = &driver();
  reused = 0;
  auto table = std::make_shared<CudaDriver>(driver());
  table->pointer_get_attributes = [](unsigned count, CUpointer_attribute* attributes, void** data,
                                     CUdeviceptr address) {
    return original->pointer_get_attributes(count, attributes, data,
                                            address == reused ? stands_for : address);
  };
  NodeSource source = this->source();
  source.driver = table;
  open({}, {request(kGpu0, kGpu1)}, source);
  const auto note_copy = [&] {
    context_->load().note_copy(host.address(), freed.address(), kTransferBytes, nullptr);
  };
  const auto busy_ns = [&](MemoryId gpu) {
    for (const LinkLoadInfo& info : context_->load().loads()) {
      const Link& link = node().links[static_cast<std::size_t>(info.link)];
      if (link.from == gpu && link.to == kHost) return info.busy_ns.front().second;
    }
    return std::uint64_t{0};
  };
  note_copy();
  const std::uint64_t before_ns = busy_ns(kGpu0);
  EXPECT_GT(before_ns, 0u);
  EXPECT_EQ(busy_ns(gpu2), 0u);
  advance(2'000);
  reused = freed.address();
  stands_for = later.address();
  note_copy();
  EXPECT_EQ(busy_ns(kGpu0), before_ns);
  EXPECT_GT(busy_ns(gpu2), 0u);
  context_.reset();
}

/// Where transfers of this process share links with routes of each other.
class OwnTrafficTest : public LoadTest {
 protected:
  [[nodiscard]] std::string tested_node() const override { return "narval"; }
  /// Four transfers from GPU 0 to GPU 1 are split, each of them while `issue` has put traffic of
  /// other streams on their links.
  void expect_split(const std::function<void()>& issue) {
    Payload payload = this->payload({kGpu0, kGpu1, kTransferBytes});
    const Stream stream = stream_on(0);
    transfer(payload, stream.get());
    const Traffic traffic(*context_);
    for (int i = 0; i < 4; ++i) {
      payload.renew(random_());
      issue();
      const std::uint64_t own = traffic.split();
      transfer_now(payload, stream.get());
      EXPECT_EQ(traffic.split(), own + 1);
      advance(2'000);
    }
    EXPECT_EQ(traffic.excluded(ExclusionReason::loaded), 0u);
  }
};

TEST_F(OwnTrafficTest, NativeCopiesBetweenGpus_AreNoLoad) {
  for (const char* const executor : {"stream", "graph"}) {
    SCOPED_TRACE(executor);
    open({{"executor", executor}}, {request(kGpu0, kGpu1)});
    PreparedPlan native;
    native.plan.transfers.resize(1);
    std::deque<Payload> copies;
    std::deque<Stream> streams;
    for (int i = 0; i < 8; ++i) {
      const auto gpu = i % 2 == 0 ? 0 : 2;
      add(copies, {MemoryId::gpu(gpu), kGpu1, kTransferBytes});
      streams.push_back(stream_on(gpu));
    }
    expect_split([&] {
      for (std::size_t i = 0; i < copies.size(); ++i) {
        const Transfer copy = copies[i].transfer(streams[i].get());
        context_->follow({&copy, 1}, native);
      }
    });
    for (const Stream& stream : streams) EXPECT_TRUE(completes(stream.get()));
    for (const Payload& copy : copies) EXPECT_TRUE(copy.arrived());
    context_.reset();
  }
}

// ---- faults -------------------------------------------------------------------------------------

TEST_F(LoadTest, ProbeNeverReturns_KeepsLinkLoaded) {
  StuckEvents stuck(driver());
  NodeSource source = this->source();
  source.driver = stuck.driver();
  open({}, {request(kGpu0, kGpu1)}, source);
  Payload payload = this->payload({kGpu0, kGpu1, kTransferBytes});
  const Stream stream = stream_on(0);
  // The samples' events are made by then, those of probes are not.
  for (int i = 0; i < 4; ++i) {
    transfer(payload, stream.get());
    advance(2000);
  }
  stuck.stick();
  {
    const ForeignCopies foreign_copies(driver(), "gpu0", "host0");
    for (int i = 0; i < kLateTransfers + 2; ++i) transfer(payload, stream.get());
  }
  EXPECT_GT(stuck.count(), 0u);
  const Traffic traffic(*context_);
  for (int i = 0; i < 5; ++i) {
    advance(50'000);
    transfer(payload, stream.get());
  }
  EXPECT_EQ(traffic.native(NativeReason::links_loaded), 5u);
  context_.reset();  // and nothing hangs
}

TEST_F(LoadTest, LinkDies_IsLeftOutUntilItLives) {
  static bool is_dead = false;
  static const CudaDriver* original = nullptr;
  original = &driver();
  auto table = std::make_shared<CudaDriver>(driver());
  table->memcpy_async = [](CUdeviceptr dst, CUdeviceptr src, std::size_t bytes, CUstream stream) {
    if (is_dead && bytes == LinkProbes::kBytes) return CUDA_ERROR_UNKNOWN;
    return original->memcpy_async(dst, src, bytes, stream);
  };
  NodeSource source = this->source();
  source.driver = table;
  open({}, {request(kGpu0, kGpu1)}, source);
  Payload payload = this->payload({kGpu0, kGpu1, kTransferBytes});
  const Stream stream = stream_on(0);
  is_dead = true;
  {
    const ForeignCopies foreign_copies(driver(), "gpu0", "host0");
    for (int i = 0; i <= kLateTransfers; ++i) transfer(payload, stream.get());
  }
  const Traffic traffic(*context_);
  for (int i = 0; i < 3; ++i) {
    advance(50'000);
    transfer(payload, stream.get());
  }
  EXPECT_EQ(traffic.native(NativeReason::links_loaded), 3u);
  is_dead = false;
  EXPECT_TRUE(comes_back(payload, stream.get(), 60'000));
}

TEST_F(LoadTest, ClockJumps_LinkIsProbedAgain) {
  open({}, {request(kGpu0, kGpu1)});
  Payload payload = this->payload({kGpu0, kGpu1, kTransferBytes});
  const Stream stream = stream_on(0);
  {
    const ForeignCopies foreign_copies(driver(), "gpu0", "host0");
    for (int i = 0; i <= kLateTransfers; ++i) transfer(payload, stream.get());
  }
  advance(3600e6);
  EXPECT_TRUE(comes_back(payload, stream.get(), 60'000));
}

/// Calls that in the steady state only samples and probes make: their failures cost a route at
/// most.
TEST_F(LoadTest, FailedSampleOrProbe_IsNoProgramError) {
  FaultInjector faults(source().driver);
  NodeSource source = this->source();
  source.driver = faults.driver();
  Payload payload = this->payload({kGpu0, kGpu1, kTransferBytes});
  const Stream stream = stream_on(0);
  for (const char* const symbol : {"cuEventCreate", "cuEventElapsedTime", "cuStreamCreate",
                                   "cuMemCreate", "cuMemMap", "cuMemSetAccess"}) {
    for (const std::uint64_t nth : {1, 2}) {
      SCOPED_TRACE(std::string(symbol) + " " + std::to_string(nth));
      open({}, {request(kGpu0, kGpu1)}, source);
      const LiveObjects before = live_objects(driver());
      {
        const ForeignCopies foreign_copies(driver(), "gpu0", "host0");
        faults.clear();
        faults.fail(symbol, nth, CUDA_ERROR_OUT_OF_MEMORY);
        for (int i = 0; i <= kLateTransfers; ++i) EXPECT_NO_THROW(transfer(payload, stream.get()));
      }
      EXPECT_EQ(faults.last_failed(), symbol);
      faults.clear();
      EXPECT_TRUE(comes_back(payload, stream.get(), 100'000));
      context_.reset();
      EXPECT_LE(live_objects(driver()).allocations, before.allocations);
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace polypath::test
