// Spreads: every byte on every GPU, which GPUs fetched it, order, errors, and what goes as a copy
// for each.
#include <gmock/gmock.h>
#include <sys/mman.h>

#include <algorithm>
#include <deque>
#include <thread>

#include "core/report.hpp"
#include "driver/fault_injection.hpp"
#include "support/gate.hpp"
#include "support/simulated_test.hpp"
#include "tune/pattern.hpp"

namespace polypath::test {
namespace {

constexpr std::uint64_t kSpreadBytes = 24 * kMiB + 4099;
constexpr auto kPoison = std::byte{0xA5};

/// One source, and a destination on each of some GPUs, with guard bytes around it.
class Spreading {
 public:
  Spreading(const CudaDriver& driver, const Node& node, MemoryId src, const std::vector<int>& gpus,
            std::uint64_t bytes, bool is_pageable = false)
      : driver_(driver), src_(driver, node, src, bytes + 64, is_pageable), bytes_(bytes) {
    for (const int gpu : gpus) {
      const auto& buffer = dsts_.emplace_back(driver, node, MemoryId::gpu(gpu), bytes + 200);
      addresses_.push_back(reinterpret_cast<void*>(buffer.address() + kBefore));
    }
  }
  void renew(std::uint64_t seed) {
    src_.fill(seed);
    for (TestBuffer& dst : dsts_) dst.poison(static_cast<std::uint8_t>(kPoison));
  }
  [[nodiscard]] Spread spread(const std::vector<void*>& streams) const {
    return {addresses_.size(), addresses_.data(), src_.address() + kSrcOffset, bytes_,
            streams.data()};
  }
  [[nodiscard]] testing::AssertionResult arrived() const {
    const auto from = read_back(driver_, src_, 0, src_.size());
    for (const TestBuffer& dst : dsts_) {
      std::vector<std::byte> expected(dst.size(), kPoison);
      std::copy_n(from.begin() + kSrcOffset, bytes_, expected.begin() + kBefore);
      const auto there = read_back(driver_, dst, 0, dst.size());
      const auto [wrong, right] = std::ranges::mismatch(there, expected);
      if (wrong != there.end())
        return testing::AssertionFailure()
               << to_string(dst.memory()) << ": byte " << wrong - there.begin() << " is wrong";
    }
    return testing::AssertionSuccess();
  }
  [[nodiscard]] testing::AssertionResult untouched(std::size_t i) const {
    const auto there = read_back(driver_, dsts_[i], 0, dsts_[i].size());
    if (std::ranges::all_of(there, [](std::byte byte) { return byte == kPoison; }))
      return testing::AssertionSuccess();
    return testing::AssertionFailure() << "destination " << i << " was written";
  }
  [[nodiscard]] TestBuffer& src() { return src_; }
  [[nodiscard]] const TestBuffer& dst(std::size_t i) const { return dsts_[i]; }
  std::vector<void*>& addresses() { return addresses_; }
  [[nodiscard]] CUdeviceptr dst_address(std::size_t i) const {
    return reinterpret_cast<CUdeviceptr>(addresses_[i]);
  }

 private:
  static constexpr int kBefore = 72;
  static constexpr int kSrcOffset = 24;

  const CudaDriver& driver_;
  TestBuffer src_;
  std::deque<TestBuffer> dsts_;
  std::vector<void*> addresses_;
  std::uint64_t bytes_;
};

/// On simulated nodes, and on GPUs that NVLinks join.
class Spreads : public EngineTest {
 protected:
  void SetUp() override {
    EngineTest::SetUp();
    if (IsSkipped()) return;
    if (gpus() < 2) GTEST_SKIP() << "needs two GPUs";
    const auto link = node().find_link(MemoryId::gpu(0), MemoryId::gpu(1));
    if (!link || node().links[static_cast<std::size_t>(*link)].type == LinkType::bounce)
      GTEST_SKIP() << "no GPUs that reach each other";
    for (int gpu = 0; gpu < gpus(); ++gpu) {
      all_.push_back(gpu);
      streams_.push_back(stream_on(gpu));
      handles_.push_back(streams_.back().get());
    }
    context_ = make_context();
  }

  std::unique_ptr<Context> make_context(OptionArguments arguments = {{"prepare", "wait"}}) {
    // What others of a real machine copy changes routes.
    if (!source().simulated) arguments.emplace_back("load", "off");
    auto context = std::make_unique<Context>(source(), arguments);
    context->prepare_spread(kHost, all_);
    return context;
  }
  Spreading spreading(MemoryId src, const std::vector<int>& gpus,
                      std::uint64_t bytes = kSpreadBytes, bool is_pageable = false) {
    return {driver(), node(), src, gpus, bytes, is_pageable};
  }
  std::vector<void*> streams_of(const std::vector<int>& gpus) const {
    std::vector<void*> streams;
    for (const int gpu : gpus) streams.push_back(handles_[static_cast<std::size_t>(gpu)]);
    return streams;
  }
  void wait_all() {
    for (const Stream& stream : streams_) ASSERT_TRUE(completes(stream.get()));
  }
  /// Runs it, and every byte arrives.
  void run(Spreading& data, const std::vector<void*>& streams) {
    data.renew(random_());
    context_->spread_async(data.spread(streams));
    wait_all();
    EXPECT_TRUE(data.arrived());
  }
  Counters::Snapshot::Spreads counts() { return context_->counters().snapshot().spreads; }
  std::uint64_t native(NativeReason reason) {
    return counts().native_by_reason[static_cast<std::size_t>(reason)];
  }
  /// Bytes that a GPU received by one route.
  std::uint64_t bytes_by(MemoryId src, int gpu, const std::string& route) {
    const auto routes = counts().routes;
    const auto known = routes.find({src, MemoryId::gpu(gpu), route});
    return known == routes.end() ? 0 : known->second.bytes;
  }
  /// Each GPU fetched a part, and got the others' from them.
  void expect_all_feed(MemoryId src, const std::vector<int>& gpus, std::uint64_t bytes) {
    EXPECT_EQ(0U, counts().native);
    for (const int gpu : gpus) {
      std::uint64_t sum = 0;
      for (const int feeder : gpus) {
        const std::uint64_t part = bytes_by(
            src, gpu, feeder == gpu ? "direct" : "via " + to_string(MemoryId::gpu(feeder)));
        EXPECT_GT(part, 0U) << gpu << " by " << feeder;
        sum += part;
      }
      EXPECT_EQ(bytes, sum) << gpu;
    }
  }

  static constexpr MemoryId kHost = MemoryId::host(0);
  std::vector<int> all_;
  std::vector<Stream> streams_;  // by GPU
  std::vector<void*> handles_;
  std::unique_ptr<Context> context_;
};

TEST_F(Spreads, HostToAllGpus_EachFetchesAPart) {
  std::uint64_t sum = 0;
  Spreading large = spreading(kHost, all_);
  run(large, handles_);
  sum += kSpreadBytes;
  for (const std::uint64_t bytes : {8 * kMiB, 8 * kMiB + 1, 11 * kMiB - 7, 64 * kMiB}) {
    Spreading data = spreading(kHost, all_, bytes);
    run(data, handles_);
    sum += bytes;
  }
  expect_all_feed(kHost, all_, sum);
  EXPECT_EQ(5U, counts().calls);
  EXPECT_THAT(report(*context_),
              testing::AllOf(testing::HasSubstr("spreads: 5, 0 as a copy for each GPU"),
                             testing::HasSubstr("spread host0 to gpu0, via gpu1: ")));
}

TEST_F(Spreads, GpuToOthers_EachFetchesAPart) {
  if (gpus() < 3) GTEST_SKIP() << "needs three GPUs";
  const std::vector<int> others(all_.begin() + 1, all_.end());
  Spreading data = spreading(MemoryId::gpu(0), others);
  run(data, streams_of(others));
  expect_all_feed(MemoryId::gpu(0), others, kSpreadBytes);
}

TEST_F(Spreads, OwnGpuOfSource_IsCopiedWithin) {
  Spreading data = spreading(MemoryId::gpu(1), all_);
  run(data, handles_);
  std::vector<int> others = all_;
  std::erase(others, 1);
  if (others.size() > 1) expect_all_feed(MemoryId::gpu(1), others, kSpreadBytes);
}

TEST_F(Spreads, TwoOfAll_FeedEachOther) {
  const std::vector<int> two{gpus() - 1, 0};
  Spreading data = spreading(kHost, two);
  run(data, streams_of(two));
  expect_all_feed(kHost, two, kSpreadBytes);
}

TEST_F(Spreads, SharedStream_OrdersAll) {
  Spreading data = spreading(kHost, all_);
  run(data, std::vector<void*>(all_.size(), handles_[1]));
  expect_all_feed(kHost, all_, kSpreadBytes);
}

TEST_F(Spreads, DefaultStream_IsOrdered) {
  Spreading data = spreading(kHost, all_);
  data.renew(random_());
  const std::vector<void*> streams(all_.size(), nullptr);
  for (std::size_t i = 0; i < all_.size(); ++i)
    POLYPATH_CHECK(driver(),
                   memset_d8_async(data.dst_address(i), 0x11, kSpreadBytes, CU_STREAM_LEGACY));
  context_->spread_async(data.spread(streams));
  ASSERT_TRUE(completes(CU_STREAM_LEGACY));
  EXPECT_TRUE(data.arrived());
  expect_all_feed(kHost, all_, kSpreadBytes);
}

TEST_F(Spreads, SingleDestination_IsTransfer) {
  Spreading data = spreading(kHost, {1});
  run(data, {handles_[1]});
  EXPECT_EQ(0U, counts().calls);
  const auto snapshot = context_->counters().snapshot();
  EXPECT_EQ(1U, std::accumulate(snapshot.native.begin(), snapshot.native.end(), snapshot.split));
}

TEST_F(Spreads, SmallOnes_AreNative) {
  Spreading data = spreading(kHost, all_, 64 * kKiB);
  run(data, handles_);
  EXPECT_EQ(1U, native(NativeReason::small));
  Spreading more = spreading(kHost, all_, 300 * kKiB);
  run(more, handles_);
  EXPECT_EQ(2U, counts().native);
  Spreading none = spreading(kHost, all_, 0);
  run(none, handles_);
  EXPECT_EQ(2U, counts().calls);
}

TEST_F(Spreads, TwoBuffersInOneGpu_AreNative) {
  const std::vector<int> gpus{0, 1, 1};
  Spreading data = spreading(kHost, gpus);
  run(data, streams_of(gpus));
  EXPECT_EQ(1U, native(NativeReason::no_gain));
}

TEST_F(Spreads, FirstOne_IsNativeMeanwhile) {
  context_ = std::make_unique<Context>(source(), OptionArguments{});
  Spreading data = spreading(kHost, all_);
  run(data, handles_);
  EXPECT_EQ(1U, native(NativeReason::not_ready));
  // Trees, then links.
  for (int i = 0; i < 3; ++i) {
    context_->wait_prepared();
    context_->reset_counters();
    run(data, handles_);
  }
  expect_all_feed(kHost, all_, kSpreadBytes);
}

TEST_F(Spreads, WorkOnStreams_KeepsItsOrder) {
  Spreading data = spreading(kHost, all_);
  std::deque<TestBuffer> before;
  std::deque<TestBuffer> after;
  for (const int gpu : all_) {
    before.emplace_back(driver(), node(), MemoryId::gpu(gpu), kSpreadBytes).poison(0x22);
    after.emplace_back(driver(), node(), MemoryId::gpu(gpu), kSpreadBytes).poison(0x33);
  }
  data.renew(7);
  const auto from = read_back(driver(), data.src(), 24, kSpreadBytes);
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < all_.size(); ++i) {
      const auto stream = streams_[i].get();
      POLYPATH_CHECK(driver(), memset_d8_async(data.dst_address(i), 0x44, kSpreadBytes, stream));
      POLYPATH_CHECK(driver(),
                     memcpy_async(before[i].address(), data.dst_address(i), kSpreadBytes, stream));
    }
    context_->spread_async(data.spread(handles_));
    for (std::size_t i = 0; i < all_.size(); ++i) {
      const auto stream = streams_[i].get();
      POLYPATH_CHECK(driver(),
                     memcpy_async(after[i].address(), data.dst_address(i), kSpreadBytes, stream));
      // Another GPU may be fed from here until then.
      POLYPATH_CHECK(driver(), memset_d8_async(data.dst_address(i), 0x55, kSpreadBytes, stream));
    }
    wait_all();
    for (std::size_t i = 0; i < all_.size(); ++i) {
      const auto old = read_back(driver(), before[i], 0, kSpreadBytes);
      EXPECT_TRUE(std::ranges::all_of(old, [](std::byte byte) { return byte == std::byte{0x44}; }));
      EXPECT_EQ(read_back(driver(), after[i], 0, kSpreadBytes), from) << i;
    }
  }
  expect_all_feed(kHost, all_, 3 * kSpreadBytes);
}

TEST_F(Spreads, HeldStream_HoldsAllOfIt) {
  Spreading data = spreading(kHost, all_);
  data.renew(random_());
  const std::size_t held = all_.size() - 1;
  Gate gate(driver(), context_of(0));
  gate.hold(streams_[held].get(), context_of(static_cast<int>(held)));
  context_->spread_async(data.spread(handles_));
  pass_time();
  for (const Stream& stream : streams_) EXPECT_FALSE(done(stream.get()));
  gate.open();
  wait_all();
  EXPECT_TRUE(data.arrived());
  expect_all_feed(kHost, all_, kSpreadBytes);
}

TEST_F(Spreads, HeldSpread_HoldsNoOther) {
  Spreading held = spreading(kHost, all_);
  Spreading free = spreading(kHost, all_);
  Payload single(driver(), node(), {kHost, MemoryId::gpu(0), kSpreadBytes}, random_());
  held.renew(random_());
  free.renew(random_());
  std::vector<Stream> others;
  std::vector<void*> handles;
  for (const int gpu : all_) {
    others.push_back(stream_on(gpu));
    handles.push_back(others.back().get());
  }
  Gate gate(driver(), context_of(0));
  gate.hold(streams_[0].get(), context_of(0));
  context_->spread_async(held.spread(handles_));
  for (int i = 0; i < 3; ++i) {
    context_->spread_async(free.spread(handles));
    context_->copy_async(single.transfer(others[0].get()));
    for (const Stream& stream : others) ASSERT_TRUE(completes(stream.get()));
  }
  gate.open();
  wait_all();
  EXPECT_TRUE(held.arrived());
  EXPECT_TRUE(free.arrived());
  EXPECT_TRUE(single.arrived());
  EXPECT_GE(counts().calls - counts().native, 2U) << "further channels are made";
}

TEST_F(Spreads, ManyQueued_FillNoChannel) {
  Spreading data = spreading(kHost, all_);
  data.renew(random_());
  Gate gate(driver(), context_of(0));
  gate.hold(streams_[0].get(), context_of(0));
  for (int i = 0; i < 40; ++i) context_->spread_async(data.spread(handles_));
  gate.open();
  wait_all();
  EXPECT_TRUE(data.arrived());
  EXPECT_EQ(40U, counts().calls);
  EXPECT_EQ(counts().native, native(NativeReason::busy));
}

TEST_F(Spreads, SkewedStreams_KeepRows) {
  std::deque<Spreading> rows;
  for (int i = 0; i < 6; ++i)
    rows.emplace_back(driver(), node(), kHost, all_, 8 * kMiB + 13 * static_cast<unsigned>(i))
        .renew(random_());
  const int late = gpus() - 1;
  TestBuffer scratch(driver(), node(), MemoryId::gpu(late), 64 * kMiB);
  std::vector<void*> turned = handles_;
  for (Spreading& row : rows) {
    POLYPATH_CHECK(driver(), memset_d8_async(scratch.address(), 1, scratch.size(),
                                             streams_[static_cast<std::size_t>(late)].get()));
    context_->spread_async(row.spread(turned));
    std::ranges::rotate(turned, turned.begin() + 1);  // streams of other GPUs than the buffers'
  }
  wait_all();
  for (const Spreading& row : rows) EXPECT_TRUE(row.arrived());
  // A stream that has not come to its spread holds a channel.
  EXPECT_EQ(counts().native, native(NativeReason::busy));
  EXPECT_LT(counts().native, 4U);
}

TEST_F(Spreads, ThreadsIssueAtOnce) {
  constexpr std::size_t kThreads = 3;
  std::deque<Spreading> data;
  std::deque<std::vector<Stream>> streams;
  std::deque<std::vector<void*>> handles;
  for (std::size_t t = 0; t < kThreads; ++t) {
    data.emplace_back(driver(), node(), kHost, all_, 9 * kMiB + 7).renew(random_());
    auto& own = streams.emplace_back();
    auto& own_handles = handles.emplace_back();
    for (const int gpu : all_) own.push_back(stream_on(gpu));
    for (const Stream& stream : own) own_handles.push_back(stream.get());
    // The first stream is another GPU's in each.
    std::ranges::rotate(own_handles, own_handles.begin() + static_cast<std::ptrdiff_t>(t));
  }
  {
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t < kThreads; ++t)
      threads.emplace_back([&, t] {
        const CurrentContext current(driver(), context_of(0));
        for (int i = 0; i < 4; ++i) context_->spread_async(data[t].spread(handles[t]));
      });
  }
  for (const auto& own : streams)
    for (const Stream& stream : own) ASSERT_TRUE(completes(stream.get()));
  for (const Spreading& each : data) EXPECT_TRUE(each.arrived());
  EXPECT_EQ(12U, counts().calls);
}

TEST_F(Spreads, CapturedOne_IsNative) {
  if (driver().stream_begin_capture == nullptr) GTEST_SKIP() << "no captures";
  Spreading data = spreading(kHost, all_);
  data.renew(random_());
  const std::vector<void*> streams(all_.size(), handles_[0]);
  POLYPATH_CHECK(driver(), stream_begin_capture(streams_[0].get(), CU_STREAM_CAPTURE_MODE_GLOBAL));
  context_->spread_async(data.spread(streams));
  CUgraph graph = nullptr;
  POLYPATH_CHECK(driver(), stream_end_capture(streams_[0].get(), &graph));
  for (std::size_t i = 0; i < all_.size(); ++i) EXPECT_TRUE(data.untouched(i));
  CUgraphExec exec = nullptr;
  POLYPATH_CHECK(driver(), graph_instantiate(&exec, graph, 0));
  POLYPATH_CHECK(driver(), graph_launch(exec, streams_[0].get()));
  wait_all();
  EXPECT_TRUE(data.arrived());
  EXPECT_EQ(1U, native(NativeReason::capturing));
  POLYPATH_CHECK(driver(), graph_exec_destroy(exec));
  POLYPATH_CHECK(driver(), graph_destroy(graph));
}

TEST_F(Spreads, WrongArguments_AreNamed) {
  const auto expect_error = [&](const char* message, auto&& spoil) {
    Spreading data = spreading(kHost, all_);
    data.renew(random_());
    std::vector<void*> streams = handles_;
    Spread spread = data.spread(streams);
    spoil(data, spread);
    try {
      context_->spread_async(spread);
      FAIL() << "no error";
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(message));
    }
    wait_all();
    for (std::size_t i = 0; i < all_.size(); ++i) EXPECT_TRUE(data.untouched(i)) << message;
  };
  expect_error("destination 1: dst is null",
               [](Spreading& data, Spread&) { data.addresses()[1] = nullptr; });
  expect_error("destination 0: src is null", [](Spreading&, Spread& spread) { spread.src = 0; });
  expect_error("passes the end of its allocation",
               [](Spreading&, Spread& spread) { spread.bytes += 4096; });
  expect_error("destinations 0 and 1 overlap", [](Spreading& data, Spread&) {
    data.addresses()[1] = static_cast<char*>(data.addresses()[0]) + 8;
  });
  expect_error("is null", [](Spreading&, Spread& spread) { spread.streams = nullptr; });
  expect_error("is null", [](Spreading&, Spread& spread) { spread.dst = nullptr; });
}

// ---- pageable memory ----------------------------------------------------------------------------

class PageableSpreads : public Spreads {
 protected:
  void SetUp() override {
    Spreads::SetUp();
    if (IsSkipped()) return;
    context_ = make_context({{"prepare", "wait"}, {"copy_threads", "16"}});
  }
};

TEST_F(PageableSpreads, EveryByteArrives) {
  for (const std::uint64_t bytes : {24 * kMiB + 4099, 64 * kMiB}) {
    Spreading data = spreading(kHost, all_, bytes, true);
    data.renew(random_());
    context_->spread_async(data.spread(handles_));
    const auto from = read_back(driver(), data.src(), 0, data.src().size());
    wait_all();
    EXPECT_TRUE(data.arrived());
  }
  EXPECT_EQ(2U, counts().pageable);
  EXPECT_EQ(0U, counts().native);
  for (const int gpu : all_) {
    std::uint64_t sum = 0;
    for (const auto& [key, count] : counts().routes)
      if (key.dst == MemoryId::gpu(gpu)) sum += count.bytes;
    EXPECT_EQ(24 * kMiB + 4099 + 64 * kMiB, sum);
  }
  EXPECT_GT(counts().routes.size(), all_.size()) << "several links carry a part";
}

TEST_F(PageableSpreads, SourceIsRead_WhenTheCallReturns) {
  Spreading data = spreading(kHost, all_, kSpreadBytes, true);
  data.renew(5);
  context_->spread_async(data.spread(handles_));
  data.src().fill(6);
  wait_all();
  data.src().fill(5);
  EXPECT_TRUE(data.arrived());
  EXPECT_EQ(1U, counts().pageable);
}

TEST_F(PageableSpreads, MappedFile_Arrives) {
  std::FILE* const file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  std::vector<std::byte> contents(kSpreadBytes + 24 + 64);
  fill_pattern(contents, 77);
  ASSERT_EQ(std::fwrite(contents.data(), 1, contents.size(), file), contents.size());
  std::fflush(file);
  void* const mapped = mmap(nullptr, contents.size(), PROT_READ, MAP_PRIVATE, fileno(file), 0);
  ASSERT_NE(mapped, MAP_FAILED);
  Spreading data = spreading(kHost, all_, kSpreadBytes);
  data.renew(77);
  Spread spread = data.spread(handles_);
  spread.src = reinterpret_cast<CUdeviceptr>(mapped) + 24;
  context_->spread_async(spread);
  wait_all();
  EXPECT_TRUE(data.arrived());
  EXPECT_EQ(1U, counts().pageable);
  munmap(mapped, contents.size());
  std::fclose(file);
}

TEST_F(PageableSpreads, TwoOfAll_AreFedByOthersToo) {
  const std::vector<int> two{gpus() - 2, gpus() - 1};
  Spreading data = spreading(kHost, two, 64 * kMiB, true);
  run(data, streams_of(two));
  EXPECT_EQ(1U, counts().pageable);
}

TEST_F(PageableSpreads, SmallOnes_GoOneByOne) {
  Spreading data = spreading(kHost, all_, 300 * kKiB, true);
  run(data, handles_);
  EXPECT_EQ(0U, counts().pageable);
  EXPECT_EQ(1U, counts().native);
}

// ---- load, and failing calls: on simulated nodes only -------------------------------------------

class SimulatedSpreads : public Spreads {
 protected:
  void SetUp() override {
    Spreads::SetUp();
    if (IsSkipped()) return;
    if (!source().simulated) GTEST_SKIP() << "on simulated nodes only";
    set_log_level(LogLevel::off);
  }
  void TearDown() override {
    context_.reset();
    set_log_level(LogLevel::warn);
    Spreads::TearDown();
  }
  [[nodiscard]] double now_us() const {
    return driver_function<double()>(driver(), "polypath_sim_clock_us")();
  }
  /// GB/s that each GPU receives.
  double rate(std::uint64_t bytes, MemoryId src, const std::vector<int>& gpus) {
    Spreading data = spreading(src, gpus, bytes);
    double best = 0;
    for (int i = 0; i < 2; ++i) {
      data.renew(random_());
      const double begin = now_us();
      context_->spread_async(data.spread(streams_of(gpus)));
      for (const Stream& stream : streams_) synchronize(stream.get());
      best = std::max(best, static_cast<double>(bytes) / (now_us() - begin) / 1e3);
      EXPECT_TRUE(data.arrived());
    }
    return best;
  }
};

TEST_F(SimulatedSpreads, Rate_IsThatOfAllLinks) {
  if (!source().virtual_time) GTEST_SKIP() << "no clock";
  const std::vector<int> others(all_.begin() + 1, all_.end());
  if (node().name == "hgx-h200-x4") {
    EXPECT_GT(rate(128 * kMiB, kHost, all_), 175) << "natively 50";
    EXPECT_GT(rate(16 * kMiB, kHost, all_), 110);
    EXPECT_GT(rate(128 * kMiB, MemoryId::gpu(0), others), 280) << "natively 132";
  } else if (node().name == "narval") {
    EXPECT_GT(rate(128 * kMiB, kHost, all_), 80) << "natively 22";
    EXPECT_GT(rate(128 * kMiB, MemoryId::gpu(0), others), 230) << "natively 93";
  }
}

TEST_F(SimulatedSpreads, NeverSlowerThanNative) {
  if (!source().virtual_time) GTEST_SKIP() << "no clock";
  for (std::uint64_t bytes = 256 * kKiB; bytes <= 16 * kMiB; bytes *= 2) {
    Spreading data = spreading(kHost, all_, bytes);
    data.renew(random_());
    const auto time = [&](auto&& issue) {
      const double begin = now_us();
      issue();
      for (const Stream& stream : streams_) synchronize(stream.get());
      return now_us() - begin;
    };
    const double own = time([&] { context_->spread_async(data.spread(handles_)); });
    EXPECT_TRUE(data.arrived());
    const double native_us = time([&] {
      for (std::size_t i = 0; i < all_.size(); ++i)
        POLYPATH_CHECK(driver(), memcpy_async(data.dst_address(i), data.src().address() + 24, bytes,
                                              streams_[i].get()));
    });
    EXPECT_LE(own, native_us + 4) << bytes << ": contexts are changed";
  }
}

TEST_F(SimulatedSpreads, LoadedLink_FeedsNothing) {
  if (!source().virtual_time) GTEST_SKIP() << "no clock";
  if (gpus() < 3) GTEST_SKIP() << "one feeder is no faster than native copies on idle links";
  Spreading data = spreading(kHost, all_);
  Payload copy(driver(), node(), {kHost, MemoryId::gpu(2), 256 * kMiB}, random_());
  const Stream other = stream_on(2);
  data.renew(random_());
  const Transfer native_copy = copy.transfer(other.get());
  context_->load().note_copy(native_copy.dst, native_copy.src, native_copy.bytes,
                             native_copy.stream);
  POLYPATH_CHECK(driver(), memcpy_async(native_copy.dst, native_copy.src, native_copy.bytes,
                                        native_copy.stream));
  context_->spread_async(data.spread(handles_));
  wait_all();
  ASSERT_TRUE(completes(other.get()));
  EXPECT_TRUE(data.arrived());
  EXPECT_TRUE(copy.arrived());
  EXPECT_EQ(0U, counts().native);
  EXPECT_EQ(0U, bytes_by(kHost, 2, "direct"));
  EXPECT_GT(bytes_by(kHost, 2, "via gpu1"), 0U);
  EXPECT_EQ(1U, context_->counters().snapshot().changed_by_load);
}

TEST_F(SimulatedSpreads, ForeignTraffic_IsFound) {
  if (node().name != "hgx-h200-x4") GTEST_SKIP() << "on one node";
  Spreading data = spreading(kHost, all_, 32 * kMiB);
  data.renew(random_());
  const auto run_some = [&](int count) {
    for (int i = 0; i < count; ++i) {
      context_->spread_async(data.spread(handles_));
      for (const Stream& stream : streams_) synchronize(stream.get());
      driver_function<void(double)>(driver(), "polypath_sim_advance_us")(150);
    }
  };
  run_some(4);
  EXPECT_GT(bytes_by(kHost, 2, "direct"), 0U);
  {
    const ForeignCopies foreign_copies(driver(), "host0", "gpu2");
    run_some(20);
    context_->reset_counters();
    run_some(3);
    EXPECT_EQ(0U, bytes_by(kHost, 2, "direct"));
    EXPECT_GT(bytes_by(kHost, 1, "direct"), 0U);
    EXPECT_EQ(0U, counts().native);
  }
  run_some(100);
  context_->reset_counters();
  run_some(1);
  expect_all_feed(kHost, all_, 32 * kMiB);
  EXPECT_TRUE(data.arrived());
}

TEST_F(SimulatedSpreads, AllLinksLoaded_IsNative) {
  if (!source().virtual_time) GTEST_SKIP() << "no clock";
  Spreading data = spreading(kHost, all_);
  data.renew(random_());
  std::deque<Payload> copies;
  std::vector<Stream> others;
  for (const int gpu : all_) {
    copies.emplace_back(driver(), node(), Payload::Shape{kHost, MemoryId::gpu(gpu), 128 * kMiB},
                        random_());
    others.push_back(stream_on(gpu));
  }
  for (std::size_t i = 0; i < all_.size(); ++i) {
    const Transfer each = copies[i].transfer(others[i].get());
    context_->load().note_copy(each.dst, each.src, each.bytes, each.stream);
    POLYPATH_CHECK(driver(), memcpy_async(each.dst, each.src, each.bytes, each.stream));
  }
  context_->spread_async(data.spread(handles_));
  wait_all();
  for (const Stream& other : others) ASSERT_TRUE(completes(other.get()));
  EXPECT_TRUE(data.arrived());
  EXPECT_EQ(1U, native(NativeReason::links_loaded));
}

class FailingSpreads : public SimulatedSpreads {
 protected:
  void SetUp() override {
    SimulatedSpreads::SetUp();
    if (IsSkipped()) return;
    context_.reset();
    faults_.emplace(source().driver);
    faulty_ = std::make_unique<NodeSource>(source());
    faulty_->driver = faults_->driver();
  }
  void TearDown() override {
    SimulatedSpreads::TearDown();
    if (faulty_ != nullptr) fail_context(driver(), 1, CUDA_SUCCESS);
  }
  void renew_context() {
    context_ = std::make_unique<Context>(
        *faulty_,
        OptionArguments{{"prepare", "wait"}, {"chunk_size", "1M"}, {"copy_threads", "4"}});
    context_->prepare_spread(kHost, all_);
  }
  /// Fails each driver call of one spread in turn. Returns the names of those that were errors.
  std::set<std::string> fail_each_call(Spreading& data) {
    std::set<std::string> errors;
    std::uint64_t calls = 1;
    for (std::uint64_t failing = 0; failing <= calls; ++failing) {
      POLYPATH_CHECK(driver(), ctx_set_current(context_of(0)));
      renew_context();
      data.renew(random_());
      faults_->clear();
      if (failing > 0) faults_->fail_call(failing, CUDA_ERROR_OUT_OF_MEMORY);
      bool failed = false;
      try {
        context_->spread_async(data.spread(handles_));
      } catch (const DriverError&) {
        failed = true;
      }
      if (failing == 0) {
        calls = faults_->calls();
        EXPECT_EQ(0U, counts().native);
      }
      const std::string symbol = faults_->last_failed();
      SCOPED_TRACE("call " + std::to_string(failing) + " of " + std::to_string(calls) + ": " +
                   symbol);
      faults_->clear();
      CUcontext current = nullptr;
      POLYPATH_CHECK(driver(), ctx_get_current(&current));
      EXPECT_TRUE(symbol == "cuCtxSetCurrent" || current == context_of(0));
      POLYPATH_CHECK(driver(), ctx_set_current(context_of(0)));
      wait_all();
      if (failed)
        errors.insert(symbol);
      else
        EXPECT_TRUE(data.arrived());
      // Nothing writes any more: the next one has every byte.
      run(data, handles_);
      if (HasFailure()) break;
    }
    return errors;
  }

  std::optional<FaultInjector> faults_;
  std::unique_ptr<NodeSource> faulty_;
};

TEST_F(FailingSpreads, EachCallOfASpread) {
  if (node().name != "hgx-h200-x4") GTEST_SKIP() << "on one node";
  Spreading data = spreading(kHost, all_, 9 * kMiB + 5);
  EXPECT_THAT(fail_each_call(data), testing::IsEmpty());
}

TEST_F(FailingSpreads, EachCallOfAPageableSpread) {
  if (!source().virtual_time) GTEST_SKIP() << "calls of threads come in any order";
  Spreading data = spreading(kHost, all_, 9 * kMiB + 5, true);
  EXPECT_THAT(fail_each_call(data), testing::IsEmpty());
}

TEST_F(FailingSpreads, FailedLinks_AreLeftOut) {
  for (const char* const call : {"cuStreamCreate", "cuCtxEnablePeerAccess", "cuEventCreate"}) {
    SCOPED_TRACE(call);
    POLYPATH_CHECK(driver(), ctx_set_current(context_of(0)));
    faults_->clear();
    faults_->fail(call, 2, CUDA_ERROR_OUT_OF_MEMORY);
    renew_context();
    faults_->clear();
    Spreading data = spreading(kHost, all_, 8 * kMiB);
    // A link that could not be made ready is tried again later.
    for (int i = 0; i < 40; ++i) run(data, handles_);
    EXPECT_LT(counts().native, 40U);
    context_->reset_counters();
    run(data, handles_);
    expect_all_feed(kHost, all_, 8 * kMiB);
  }
}

TEST_F(FailingSpreads, ContextThatFails_IsNoFeederLater) {
  renew_context();
  const std::vector<int> two{0, 1};
  const std::vector<void*> streams(2, handles_[0]);
  Spreading data = spreading(kHost, two);
  data.renew(random_());
  POLYPATH_CHECK(driver(), ctx_set_current(context_of(0)));
  fail_context(driver(), 1, CUDA_ERROR_ILLEGAL_ADDRESS);
  // GPU 1 issues nothing any more: GPU 0 copies to both.
  context_->spread_async(data.spread(streams));
  ASSERT_TRUE(completes(streams_[0].get()));
  EXPECT_EQ(1U, counts().native);
  context_->spread_async(data.spread(streams));
  ASSERT_TRUE(completes(streams_[0].get()));
  fail_context(driver(), 1, CUDA_SUCCESS);
  POLYPATH_CHECK(driver(), ctx_set_current(context_of(0)));
  EXPECT_TRUE(data.arrived());
  EXPECT_EQ(2U, counts().calls);
  EXPECT_EQ(0U, context_->counters().snapshot().failed);
}

}  // namespace
}  // namespace polypath::test
