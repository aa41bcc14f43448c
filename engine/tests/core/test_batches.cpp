// Batches of small copies: every byte, which GPUs copied them, order, errors, and what is left to
// the driver.
#include <gmock/gmock.h>

#include <algorithm>
#include <deque>
#include <numeric>
#include <thread>

#include "core/report.hpp"
#include "driver/fault_injection.hpp"
#include "mapped_buffer.hpp"
#include "support/background_hold.hpp"
#include "support/gate.hpp"
#include "support/simulated_test.hpp"

namespace polypath::test {
namespace {

constexpr auto kPoison = std::byte{0xA5};

/// Blocks from random places of one buffer to random places of another.
class Blocks {
 public:
  struct Shape {
    MemoryId src;
    MemoryId dst;
    std::size_t count = 0;
    std::uint64_t max_bytes = 0;
    bool has_odd_places = true;  ///< else all are of max_bytes, at multiples of it
  };

  Blocks(const CudaDriver& driver, const Node& node, const Shape& shape, std::mt19937_64& random)
      : driver_(driver),
        src_(driver, node, shape.src, shape.count * shape.max_bytes),
        dst_(driver, node, shape.dst, shape.count * shape.max_bytes + 64) {
    std::vector<std::size_t> slots(shape.count);
    std::iota(slots.begin(), slots.end(), std::size_t{0});
    std::ranges::shuffle(slots, random);
    for (const std::size_t slot : slots) {
      const bool is_odd = shape.has_odd_places && random() % 4 != 0;
      const std::uint64_t bytes = is_odd ? random() % (shape.max_bytes - 32) : shape.max_bytes;
      // A source may be read twice.
      const std::uint64_t from = random() % shape.count * shape.max_bytes;
      add(slot * shape.max_bytes + (is_odd ? random() % 32 : 0),
          from + (is_odd ? random() % 32 : 0), bytes);
    }
    renew(random());
  }

  void add(std::uint64_t to, std::uint64_t from, std::uint64_t bytes) {
    dsts_.push_back(reinterpret_cast<void*>(dst_.address() + to));
    srcs_.push_back(reinterpret_cast<const void*>(src_.address() + from));
    bytes_.push_back(bytes);
  }
  void renew(std::uint64_t seed) {
    src_.fill(seed);
    dst_.poison(static_cast<std::uint8_t>(kPoison));
  }
  [[nodiscard]] Batch batch(CUstream stream) const {
    return {dsts_.size(), dsts_.data(), srcs_.data(), bytes_.data(), stream};
  }
  /// In the stream's order.
  void poison(CUstream stream) const {
    POLYPATH_CHECK(driver_, memset_d8_async(dst_.address(), static_cast<unsigned char>(kPoison),
                                            dst_.size(), stream));
  }
  [[nodiscard]] std::uint64_t bytes() const {
    return std::accumulate(bytes_.begin(), bytes_.end(), std::uint64_t{0});
  }
  testing::AssertionResult arrived() const {
    const auto from = read_back(driver_, src_, 0, src_.size());
    std::vector<std::byte> expected(dst_.size(), kPoison);
    for (std::size_t i = 0; i < bytes_.size(); ++i)
      std::copy_n(from.data() + (reinterpret_cast<CUdeviceptr>(srcs_[i]) - src_.address()),
                  bytes_[i],
                  expected.data() + (reinterpret_cast<CUdeviceptr>(dsts_[i]) - dst_.address()));
    return holds(expected);
  }
  testing::AssertionResult untouched() const {
    return holds(std::vector<std::byte>(dst_.size(), kPoison));
  }

  std::vector<void*>& dsts() { return dsts_; }
  std::vector<const void*>& srcs() { return srcs_; }
  std::vector<std::size_t>& sizes() { return bytes_; }
  [[nodiscard]] const TestBuffer& dst() const { return dst_; }

 private:
  testing::AssertionResult holds(const std::vector<std::byte>& expected) const {
    const auto contents = read_back(driver_, dst_, 0, dst_.size());
    const auto [wrong, right] = std::ranges::mismatch(contents, expected);
    if (wrong == contents.end()) return testing::AssertionSuccess();
    return testing::AssertionFailure() << "byte " << wrong - contents.begin() << " is wrong";
  }

  const CudaDriver& driver_;
  TestBuffer src_;
  TestBuffer dst_;
  std::vector<void*> dsts_;
  std::vector<const void*> srcs_;
  std::vector<std::size_t> bytes_;
};

/// On simulated nodes, and on GPUs that NVLinks join.
class Batches : public EngineTest {
 protected:
  void SetUp() override {
    EngineTest::SetUp();
    if (IsSkipped()) return;
    const auto link = gpus() > 1 ? node().find_link(MemoryId::gpu(0), far()) : std::nullopt;
    if (!link || node().links[static_cast<std::size_t>(*link)].type == LinkType::bounce)
      GTEST_SKIP() << "no GPUs that reach each other";
    stream_.emplace(stream_on(0));
    context_ = make_context();
  }

  std::unique_ptr<Context> make_context(OptionArguments arguments = {}) {
    auto context = std::make_unique<Context>(source(), arguments);
    context->prepare_batches({{MemoryId::host(0), MemoryId::gpu(0), 0},
                              {MemoryId::gpu(0), MemoryId::host(0), 0},
                              {MemoryId::gpu(0), far(), 0}});
    return context;
  }
  [[nodiscard]] static MemoryId far() { return MemoryId::gpu(1); }
  Blocks blocks(const Blocks::Shape& shape) { return {driver(), node(), shape, random_}; }

  /// Runs it, and every byte arrives.
  void run(const Blocks& blocks) {
    context_->copy_batch_async(blocks.batch(stream_->get()));
    ASSERT_TRUE(completes(stream_->get()));
    EXPECT_TRUE(blocks.arrived());
  }
  /// Bytes that kernels copied since the last reset, by route.
  std::map<std::string, std::uint64_t> kernel_bytes() {
    std::map<std::string, std::uint64_t> bytes;
    for (const auto& [key, count] : counts().routes) bytes[key.route] += count.bytes;
    return bytes;
  }
  Counters::Snapshot::Batches counts() { return context_->counters().snapshot().batches; }
  /// All bytes went by kernels: of the pair's own GPU, and of all others.
  void expect_all_gpus(std::uint64_t bytes) {
    const auto by_route = kernel_bytes();
    std::uint64_t sum = 0;
    for (const auto& [route, each] : by_route) {
      EXPECT_GT(each, 0U) << route;
      sum += each;
    }
    EXPECT_EQ(bytes, sum);
    EXPECT_EQ(static_cast<std::size_t>(gpus()), by_route.size());
    EXPECT_TRUE(by_route.contains("direct"));
    EXPECT_EQ(0U, counts().native);
  }

  std::unique_ptr<Context> context_;
  std::optional<Stream> stream_;
};

constexpr Blocks::Shape kToGpu{MemoryId::host(0), MemoryId::gpu(0), 400, 12 * kKiB};
constexpr Blocks::Shape kToHost{MemoryId::gpu(0), MemoryId::host(0), 400, 12 * kKiB};

TEST_F(Batches, HostToGpu_GoesByAllGpus) {
  const Blocks data = blocks(kToGpu);
  run(data);
  expect_all_gpus(data.bytes());
  EXPECT_EQ(1U, counts().calls);
  EXPECT_THAT(report(*context_),
              testing::AllOf(testing::HasSubstr("batches: 1, "),
                             testing::HasSubstr("blocks host0 to gpu0, direct: ")));
}

// Its own GPU alone may access it: that one copies, and all do once it may be shared.
TEST_F(Batches, SharedMapping_GoesByAllGpus) {
  Blocks data = blocks(kToGpu);
  const std::uint64_t bytes = data.dst().size();
  MappedBuffer mapped(driver(), 8 * kMiB, 8 * kMiB);
  ASSERT_GE(8 * kMiB, bytes);
  const auto move = [&](CUdeviceptr from, CUdeviceptr to) {
    for (void*& dst : data.dsts())
      dst = reinterpret_cast<void*>(reinterpret_cast<CUdeviceptr>(dst) - from + to);
  };
  for (const bool is_shared : {false, true}) {
    SCOPED_TRACE(is_shared);
    if (is_shared) context_->share_mapping(mapped.address(), 8 * kMiB);
    context_->reset_counters();
    data.renew(random_());
    move(data.dst().address(), mapped.address());
    POLYPATH_CHECK(driver(),
                   memcpy_async(mapped.address(), data.dst().address(), bytes, stream_->get()));
    context_->copy_batch_async(data.batch(stream_->get()));
    POLYPATH_CHECK(driver(),
                   memcpy_async(data.dst().address(), mapped.address(), bytes, stream_->get()));
    ASSERT_TRUE(completes(stream_->get()));
    move(mapped.address(), data.dst().address());
    EXPECT_TRUE(data.arrived());
    if (is_shared)
      expect_all_gpus(data.bytes());
    else
      EXPECT_GE(1U, kernel_bytes().size());
  }
}

TEST_F(Batches, GpuToHost_GoesByAllGpus) {
  const Blocks data = blocks(kToHost);
  run(data);
  expect_all_gpus(data.bytes());
}

TEST_F(Batches, GpuToGpu_GoesByOneKernel) {
  const Blocks data = blocks({MemoryId::gpu(0), far(), 200, 9 * kKiB});
  run(data);
  const Blocks back = blocks({far(), MemoryId::gpu(0), 200, 9 * kKiB});
  run(back);
  EXPECT_THAT(kernel_bytes(),
              testing::ElementsAre(testing::Pair("direct", data.bytes() + back.bytes())));
}

TEST_F(Batches, StreamOfAnotherGpu_GoesByAllGpus) {
  stream_.emplace(stream_on(gpus() - 1));
  const Blocks data = blocks(kToGpu);
  run(data);
  expect_all_gpus(data.bytes());
}

TEST_F(Batches, StreamOfThirdGpu_CopiesBetweenOthers) {
  if (gpus() < 3) GTEST_SKIP() << "three GPUs";
  stream_.emplace(stream_on(2));
  const Blocks data = blocks({MemoryId::gpu(0), far(), 200, 9 * kKiB});
  run(data);
  EXPECT_THAT(kernel_bytes(), testing::ElementsAre(testing::Pair("direct", data.bytes())));
}

TEST_F(Batches, DefaultStream_IsOrdered) {
  const Blocks data = blocks(kToGpu);
  for (const CUstream stream : {CU_STREAM_LEGACY, CU_STREAM_PER_THREAD}) {
    data.poison(stream);
    context_->copy_batch_async(data.batch(stream));
    ASSERT_TRUE(completes(stream));
    EXPECT_TRUE(data.arrived());
  }
  expect_all_gpus(2 * data.bytes());
}

TEST_F(Batches, ThreadsIssueAtOnce) {
  constexpr int kThreads = 4;
  std::deque<Blocks> all;
  std::vector<Stream> streams;
  for (int t = 0; t < kThreads; ++t) {
    all.emplace_back(driver(), node(), t % 2 == 0 ? kToGpu : kToHost, random_);
    streams.push_back(stream_on(0));
  }
  {
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t < kThreads; ++t)
      threads.emplace_back([&, t] {
        const CurrentContext current(driver(), context_of(0));
        for (int i = 0; i < 5; ++i) context_->copy_batch_async(all[t].batch(streams[t].get()));
      });
  }
  for (const Stream& stream : streams) ASSERT_TRUE(completes(stream.get()));
  for (const Blocks& data : all) EXPECT_TRUE(data.arrived());
}

/// Kernels of one GPU may not reach host memory, as where it is registered for one context.
TEST_F(Batches, UnreachableHostMemory_LeavesGpuOut) {
  static const CudaDriver* real = nullptr;
  static CUcontext blind = nullptr;
  real = &driver();
  blind = context_of(gpus() - 1);
  auto table = std::make_shared<CudaDriver>(driver());
  table->pointer_get_attributes = [](unsigned int count, CUpointer_attribute* attributes,
                                     void** values, CUdeviceptr address) {
    const CUresult result = real->pointer_get_attributes(count, attributes, values, address);
    CUcontext current = nullptr;
    if (count == 1 && attributes[0] == CU_POINTER_ATTRIBUTE_DEVICE_POINTER &&
        real->ctx_get_current(&current) == CUDA_SUCCESS && current == blind)
      *static_cast<CUdeviceptr*>(values[0]) = 0;
    return result;
  };
  NodeSource node_source = source();
  node_source.driver = table;
  context_ = std::make_unique<Context>(node_source, OptionArguments{{"prepare", "wait"}});
  const Blocks data = blocks(kToGpu);
  run(data);
  const auto by_route = kernel_bytes();
  EXPECT_EQ(static_cast<std::size_t>(gpus()) - 1, by_route.size());
  EXPECT_FALSE(by_route.contains("via gpu" + std::to_string(gpus() - 1)));
  EXPECT_EQ(0U, counts().native);
  context_.reset();
}

TEST_F(Batches, ManyEqualBlocks_Arrive) {
  const Blocks data = blocks({MemoryId::host(0), MemoryId::gpu(0), 16384, 1024, false});
  run(data);
  expect_all_gpus(16384 * 1024);
}

TEST_F(Batches, SingleBlock_IsNative) {
  const Blocks data = blocks({MemoryId::host(0), MemoryId::gpu(0), 1, 4096});
  run(data);
  EXPECT_THAT(kernel_bytes(), testing::IsEmpty());
  EXPECT_EQ(1U, counts().native);
}

TEST_F(Batches, EmptyBlocks_AreNotCopied) {
  Blocks data = blocks(kToGpu);
  std::ranges::fill(data.sizes(), 0U);
  run(data);
  EXPECT_TRUE(data.untouched());
  context_->copy_batch_async({});
  EXPECT_EQ(0U, counts().native);
}

TEST_F(Batches, MixedMemories_ArriveTogether) {
  Blocks data = blocks(kToGpu);
  const Blocks back = blocks(kToHost);
  const Blocks over = blocks({MemoryId::gpu(0), far(), 100, 5000});
  const Blocks within = blocks({MemoryId::gpu(0), MemoryId::gpu(0), 3, 5000});
  std::vector<void*> dsts;
  std::vector<const void*> srcs;
  std::vector<std::size_t> bytes;
  const std::vector<Batch> all{data.batch(nullptr), back.batch(nullptr), over.batch(nullptr),
                               within.batch(nullptr)};
  for (std::size_t i = 0; i < 400; ++i)
    for (const Batch& each : all) {
      if (i >= each.count) continue;
      dsts.push_back(each.dst[i]);
      srcs.push_back(each.src[i]);
      bytes.push_back(each.bytes[i]);
    }
  context_->copy_batch_async({dsts.size(), dsts.data(), srcs.data(), bytes.data(), stream_->get()});
  ASSERT_TRUE(completes(stream_->get()));
  for (const Blocks* const each : {&std::as_const(data), &back, &over, &within})
    EXPECT_TRUE(each->arrived());
  const auto& counted = counts();
  EXPECT_EQ(3U, counted.native_by_reason[static_cast<std::size_t>(NativeReason::same_memory)]);
  std::uint64_t kernels = 0;
  for (const auto& [route, each] : kernel_bytes()) kernels += each;
  EXPECT_EQ(data.bytes() + back.bytes() + over.bytes(), kernels);
}

TEST_F(Batches, PageableBlocks_GoNatively) {
  Blocks data = blocks(kToGpu);
  std::vector<std::byte> pageable(8192, std::byte{7});
  data.srcs()[5] = pageable.data() + 3;
  data.sizes()[5] = 5000;
  context_->copy_batch_async(data.batch(stream_->get()));
  ASSERT_TRUE(completes(stream_->get()));
  const auto there =
      read_back(driver(), data.dst(),
                reinterpret_cast<CUdeviceptr>(data.dsts()[5]) - data.dst().address(), 5000);
  EXPECT_THAT(there, testing::Each(std::byte{7}));
  EXPECT_EQ(1U, counts().native_by_reason[static_cast<std::size_t>(NativeReason::pageable)]);
  EXPECT_EQ(static_cast<std::size_t>(gpus()), kernel_bytes().size());
}

TEST_F(Batches, LargeBlocks_AreTransfers) {
  context_ = make_context({{"batch_copy_size", "1M"}, {"prepare", "wait"}});
  Blocks data = blocks({MemoryId::host(0), MemoryId::gpu(0), 40, 2 * kMiB, false});
  for (std::size_t i = 2; i < 40; ++i) data.sizes()[i] = 20000 + i;
  run(data);
  EXPECT_EQ(2U, counts().large);
  const auto snapshot = context_->counters().snapshot();
  EXPECT_EQ(2U, std::accumulate(snapshot.native.begin(), snapshot.native.end(), snapshot.split));
  std::uint64_t kernels = 0;
  for (const auto& [route, each] : kernel_bytes()) kernels += each;
  EXPECT_EQ(data.bytes() - 4 * kMiB, kernels);
}

TEST_F(Batches, GoInTheOrderOfTheStream) {
  const Blocks data = blocks(kToGpu);
  TestBuffer copy(driver(), node(), far(), data.dst().size());
  copy.poison();
  for (int round = 0; round < 3; ++round) {
    POLYPATH_CHECK(driver(),
                   memset_d8_async(data.dst().address(), 0xA5, data.dst().size(), stream_->get()));
    context_->copy_batch_async(data.batch(stream_->get()));
    POLYPATH_CHECK(driver(), memcpy_async(copy.address(), data.dst().address(), data.dst().size(),
                                          stream_->get()));
    POLYPATH_CHECK(driver(),
                   memset_d8_async(data.dst().address(), 0x11, data.dst().size(), stream_->get()));
    ASSERT_TRUE(completes(stream_->get()));
    const auto expected = read_back(driver(), copy, 0, copy.size());
    POLYPATH_CHECK(driver(),
                   memcpy_async(data.dst().address(), copy.address(), copy.size(), stream_->get()));
    synchronize(stream_->get());
    EXPECT_TRUE(data.arrived());
  }
}

TEST_F(Batches, WrongArguments_AreNamed) {
  const auto expect_error = [&](const char* message, auto&& spoil) {
    Blocks data = blocks(kToGpu);
    spoil(data);
    try {
      context_->copy_batch_async(data.batch(stream_->get()));
      FAIL() << "no error";
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(message));
    }
    ASSERT_TRUE(completes(stream_->get()));
    EXPECT_TRUE(data.untouched());
  };
  expect_error("copy 3: dst is null", [](Blocks& data) { data.dsts()[3] = nullptr; });
  expect_error("copy 399: src is null", [](Blocks& data) { data.srcs()[399] = nullptr; });
  expect_error("copy 7: src",
               [](Blocks& data) { data.srcs()[7] = reinterpret_cast<const void*>(0x10); });
  expect_error("copy 8: bytes are", [](Blocks& data) { data.sizes()[8] = SIZE_MAX; });
  expect_error("passes the end of its allocation",
               [](Blocks& data) { data.sizes()[9] = kToGpu.count * kToGpu.max_bytes + 1; });
  expect_error("copy 1: dst", [](Blocks& data) {
    data.srcs()[1] = static_cast<char*>(data.dsts()[1]) + 1;
    data.sizes()[1] = 64;
  });
  Batch nothing{3, nullptr, nullptr, nullptr, stream_->get()};
  EXPECT_THROW(context_->copy_batch_async(nothing), InvalidArgument);
}

TEST_F(Batches, CapturedBatch_IsNative) {
  if (driver().stream_begin_capture == nullptr) GTEST_SKIP() << "no captures";
  const Blocks data = blocks({MemoryId::host(0), MemoryId::gpu(0), 50, 4096});
  POLYPATH_CHECK(driver(), stream_begin_capture(stream_->get(), CU_STREAM_CAPTURE_MODE_GLOBAL));
  context_->copy_batch_async(data.batch(stream_->get()));
  CUgraph graph = nullptr;
  POLYPATH_CHECK(driver(), stream_end_capture(stream_->get(), &graph));
  EXPECT_TRUE(data.untouched());
  CUgraphExec exec = nullptr;
  POLYPATH_CHECK(driver(), graph_instantiate(&exec, graph, 0));
  POLYPATH_CHECK(driver(), graph_launch(exec, stream_->get()));
  ASSERT_TRUE(completes(stream_->get()));
  EXPECT_TRUE(data.arrived());
  EXPECT_EQ(50U, counts().native_by_reason[static_cast<std::size_t>(NativeReason::capturing)]);
  POLYPATH_CHECK(driver(), graph_exec_destroy(exec));
  POLYPATH_CHECK(driver(), graph_destroy(graph));
}

TEST_F(Batches, CapturedBatch_IsNoBatchOfTheDriver) {
  if (driver().memcpy_batch_async == nullptr) GTEST_SKIP() << "no batches";
  static int calls = 0;
  calls = 0;
  auto table = std::make_shared<CudaDriver>(driver());
  table->memcpy_batch_async = [](CUdeviceptr*, CUdeviceptr*, std::size_t*, std::size_t,
                                 CUmemcpyAttributes*, std::size_t*, std::size_t, CUstream) {
    ++calls;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  };
  NodeSource node_source = source();
  node_source.driver = table;
  context_ = std::make_unique<Context>(node_source, OptionArguments{});
  // Within one memory nothing is offered to kernels.
  for (const MemoryId dst : {MemoryId::gpu(0), far()}) {
    const Blocks data = blocks({MemoryId::gpu(0), dst, 3, 4096});
    POLYPATH_CHECK(driver(), stream_begin_capture(stream_->get(), CU_STREAM_CAPTURE_MODE_GLOBAL));
    context_->copy_batch_async(data.batch(stream_->get()));
    CUgraph graph = nullptr;
    POLYPATH_CHECK(driver(), stream_end_capture(stream_->get(), &graph));
    POLYPATH_CHECK(driver(), graph_destroy(graph));
  }
  EXPECT_EQ(0, calls);
  EXPECT_EQ(6U, counts().native);
  context_.reset();
}

TEST_F(Batches, TryBatch_LeavesNativeOnes) {
  const Blocks small = blocks({MemoryId::host(0), MemoryId::gpu(0), 2, 4096});
  bool midway = true;
  EXPECT_FALSE(context_->try_copy_batch_async(small.batch(stream_->get()), midway));
  EXPECT_FALSE(midway);
  ASSERT_TRUE(completes(stream_->get()));
  EXPECT_TRUE(small.untouched());
  EXPECT_EQ(0U, counts().calls);
  const Blocks data = blocks(kToGpu);
  EXPECT_TRUE(context_->try_copy_batch_async(data.batch(stream_->get()), midway));
  ASSERT_TRUE(completes(stream_->get()));
  EXPECT_TRUE(data.arrived());
}

TEST_F(Batches, FirstBatch_GoesNativelyMeanwhile) {
  BackgroundHold hold(driver());
  NodeSource held = source();
  held.driver = hold.driver();
  context_ = std::make_unique<Context>(held, OptionArguments{});
  const Blocks data = blocks(kToGpu);
  run(data);
  EXPECT_EQ(400U, counts().native);
  hold.end();
  Blocks again = blocks(kToGpu);
  // Further GPUs are asked for when the pair's own one is ready.
  for (int i = 0; i < 3; ++i) {
    context_->wait_prepared();
    context_->reset_counters();
    again.renew(random_());
    run(again);
  }
  expect_all_gpus(again.bytes());
  context_.reset();
}

TEST_F(Batches, Setting_SwitchesKernelsOff) {
  context_ = std::make_unique<Context>(source(),
                                       OptionArguments{{"batch_blocks", "0"}, {"prepare", "wait"}});
  const Blocks data = blocks(kToGpu);
  run(data);
  EXPECT_EQ(400U, counts().native);
  context_ = std::make_unique<Context>(source(),
                                       OptionArguments{{"routes", "direct"}, {"prepare", "wait"}});
  const Blocks alone = blocks(kToGpu);
  run(alone);
  EXPECT_THAT(kernel_bytes(), testing::ElementsAre(testing::Pair("direct", alone.bytes())));
}

TEST_F(Batches, ManyBatches_UseTheTableAgain) {
  // Each takes a quarter of the table.
  const Blocks data = blocks({MemoryId::host(0), MemoryId::gpu(0), 60000, 64, false});
  for (int i = 0; i < 6; ++i) {
    context_->copy_batch_async(data.batch(stream_->get()));
    ASSERT_TRUE(completes(stream_->get()));
  }
  EXPECT_TRUE(data.arrived());
  expect_all_gpus(6 * data.bytes());
}

TEST_F(Batches, FullTable_CopiesNatively) {
  const Blocks first = blocks({MemoryId::host(0), MemoryId::gpu(0), 128000, 48, false});
  const Blocks second = blocks(kToGpu);
  Gate gate(driver(), context_of(0));
  gate.hold(stream_->get(), context_of(0));
  // Two leave room for two of the small ones.
  for (int i = 0; i < 2; ++i) context_->copy_batch_async(first.batch(stream_->get()));
  EXPECT_EQ(0U, counts().native);
  for (int i = 0; i < 3; ++i) context_->copy_batch_async(second.batch(stream_->get()));
  EXPECT_EQ(400U, counts().native_by_reason[static_cast<std::size_t>(NativeReason::busy)]);
  gate.open();
  ASSERT_TRUE(completes(stream_->get()));
  EXPECT_TRUE(first.arrived());
  EXPECT_TRUE(second.arrived());
}

TEST_F(Batches, HeldStream_HoldsNoOtherBatch) {
  const Blocks held = blocks(kToGpu);
  const Blocks free = blocks(kToGpu);
  const Stream other = stream_on(0);
  Gate gate(driver(), context_of(0));
  gate.hold(stream_->get(), context_of(0));
  context_->copy_batch_async(held.batch(stream_->get()));
  for (int i = 0; i < 3; ++i) {
    context_->copy_batch_async(free.batch(other.get()));
    ASSERT_TRUE(completes(other.get()));
    // Further streams are made in the background.
    context_->wait_prepared();
  }
  EXPECT_TRUE(free.arrived());
  EXPECT_TRUE(held.untouched());
  gate.open();
  ASSERT_TRUE(completes(stream_->get()));
  EXPECT_TRUE(held.arrived());
}

// ---- failing calls ------------------------------------------------------------------------------

class FailingBatches : public Batches {
 protected:
  void SetUp() override {
    Batches::SetUp();
    if (IsSkipped()) return;
    if (!source().simulated) GTEST_SKIP() << "on simulated nodes only";
    // Failures are provoked here; their warnings would hide others.
    set_log_level(LogLevel::off);
    context_.reset();
    faults_.emplace(source().driver);
    NodeSource faulty = source();
    faulty.driver = faults_->driver();
    faulty_ = std::make_unique<NodeSource>(std::move(faulty));
  }
  void TearDown() override {
    context_.reset();
    set_log_level(LogLevel::warn);
    Batches::TearDown();
  }
  void renew_context() {
    context_ = std::make_unique<Context>(*faulty_, OptionArguments{});
    context_->prepare_batches({{MemoryId::host(0), MemoryId::gpu(0), 0}});
  }

  std::optional<FaultInjector> faults_;
  std::unique_ptr<NodeSource> faulty_;
};

TEST_F(FailingBatches, FailedLaunch_IsCopiedNatively) {
  Blocks data = blocks(kToGpu);
  for (std::uint64_t launch = 1; launch <= static_cast<std::uint64_t>(gpus()); ++launch) {
    renew_context();
    data.renew(random_());
    faults_->clear();
    faults_->fail("cuLaunchKernel", launch, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    context_->copy_batch_async(data.batch(stream_->get()));
    EXPECT_EQ("cuLaunchKernel", faults_->last_failed());
    faults_->clear();
    ASSERT_TRUE(completes(stream_->get()));
    EXPECT_TRUE(data.arrived());
    EXPECT_EQ(static_cast<std::size_t>(gpus()) - 1, kernel_bytes().size());
    // The next one has all again.
    data.renew(random_());
    context_->reset_counters();
    run(data);
    EXPECT_EQ(static_cast<std::size_t>(gpus()), kernel_bytes().size());
  }
}

TEST_F(FailingBatches, EachCallOfABatch) {
  Blocks data = blocks({MemoryId::host(0), MemoryId::gpu(0), 60, 64 * kKiB});
  std::uint64_t calls = 1;
  std::set<std::string> errors;
  for (std::uint64_t failing = 0; failing <= calls; ++failing) {
    POLYPATH_CHECK(driver(), ctx_set_current(context_of(0)));
    renew_context();
    data.renew(random_());
    faults_->clear();
    if (failing > 0) faults_->fail_call(failing, CUDA_ERROR_OUT_OF_MEMORY);
    bool failed = false;
    try {
      context_->copy_batch_async(data.batch(stream_->get()));
    } catch (const DriverError&) {
      failed = true;
    }
    if (failing == 0) {
      calls = faults_->calls();
      ASSERT_EQ(static_cast<std::size_t>(gpus()), kernel_bytes().size());
    }
    const std::string symbol = faults_->last_failed();
    SCOPED_TRACE("call " + std::to_string(failing) + " of " + std::to_string(calls) + ": " +
                 symbol);
    faults_->clear();
    POLYPATH_CHECK(driver(), ctx_set_current(context_of(0)));
    ASSERT_TRUE(completes(stream_->get()));
    if (failed)
      errors.insert(symbol);
    else
      EXPECT_TRUE(data.arrived());
    data.renew(random_());
    run(data);
  }
  // What the classification asks before anything is issued.
  EXPECT_THAT(errors, testing::IsSubsetOf({"cuPointerGetAttributes"}));
}

}  // namespace
}  // namespace polypath::test
