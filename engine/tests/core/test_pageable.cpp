// Transfers from and to pageable memory: every byte, the order on streams, and which routes took
// them. In virtual time the calling thread does the copy threads' work; in functional mode they do.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "driver/fault_injection.hpp"
#include "support/gate.hpp"
#include "support/hooked_driver.hpp"
#include "support/in_child.hpp"
#include "support/simulated_test.hpp"
#include "tune/pattern.hpp"

namespace polypath::test {
namespace {

/// Several chunks for each thread, and more than one link carries.
constexpr std::uint64_t kLarge = 24 * kMiB + 4099;

/// Pageable memory with guard bytes on both sides, at an odd address.
class HostRange {
 public:
  explicit HostRange(std::uint64_t bytes, std::uint64_t offset = 61)
      : memory_(bytes + 2 * offset, kPoison), offset_(offset), bytes_(bytes) {}

  [[nodiscard]] CUdeviceptr address() { return reinterpret_cast<CUdeviceptr>(range().data()); }
  [[nodiscard]] std::span<std::byte> range() { return std::span(memory_).subspan(offset_, bytes_); }
  void fill(std::uint64_t seed) { fill_pattern(range(), seed); }
  [[nodiscard]] bool has(std::uint64_t seed) {
    const auto is_poison = [](std::byte byte) { return byte == kPoison; };
    return !first_difference(range(), seed) &&
           std::ranges::all_of(std::span(memory_).first(offset_), is_poison) &&
           std::ranges::all_of(std::span(memory_).last(offset_), is_poison);
  }

 private:
  static constexpr std::byte kPoison{0xA5};
  std::vector<std::byte> memory_;
  std::uint64_t offset_;
  std::uint64_t bytes_;
};

class PageableTest : public SimulatedTest {
 protected:
  void SetUp() override {
    SimulatedTest::SetUp();
    if (IsSkipped()) return;
    context_ = make({});
    stream_.emplace(stream_on(0));
  }
  std::unique_ptr<Context> make(OptionArguments arguments) {
    arguments.emplace_back("prepare", "wait");
    const bool names_threads = std::ranges::any_of(
        arguments, [](const auto& argument) { return argument.first == "copy_threads"; });
    if (!names_threads) arguments.emplace_back("copy_threads", "16");
    return std::make_unique<Context>(source(), arguments);
  }
  std::uint64_t carried() { return context_->counters().snapshot().pageable; }
  /// Routes that bytes took so far.
  std::size_t routes() { return context_->counters().snapshot().routes.size(); }

  std::unique_ptr<Context> context_;
  std::optional<Stream> stream_;
};

TEST_F(PageableTest, ToGpu_EveryByteArrives) {
  std::uint64_t seed = 10;
  for (const std::uint64_t bytes : {7 * kMiB, 7 * kMiB + 1, 9 * kMiB - 7, kLarge, 64 * kMiB}) {
    SCOPED_TRACE(bytes);
    HostRange host(bytes);
    host.fill(++seed);
    TestBuffer device(driver(), node(), MemoryId::gpu(0), bytes + 200);
    device.poison();
    const std::uint64_t before = carried();
    copy(*context_, {device.address() + 77, host.address(), bytes, stream_->get()});
    host.fill(99);  // the call has read it
    synchronize(stream_->get());
    std::vector<std::byte> there = read_back(driver(), device, 0, bytes + 200);
    EXPECT_EQ(first_difference(std::span(there).subspan(77, bytes), seed), std::nullopt);
    there.erase(there.begin() + 77, there.begin() + 77 + static_cast<std::ptrdiff_t>(bytes));
    EXPECT_TRUE(std::ranges::all_of(there, [](std::byte byte) { return byte == std::byte{0xA5}; }));
    EXPECT_EQ(carried(), before + 1);
  }
  EXPECT_GT(routes(), 2u) << "links of several GPUs carry a part";
}

TEST_F(PageableTest, FromGpu_EveryByteArrives) {
  std::uint64_t seed = 20;
  for (const std::uint64_t bytes : {16 * kMiB, 16 * kMiB + 1, 25 * kMiB - 7, kLarge}) {
    SCOPED_TRACE(bytes);
    HostRange host(bytes);
    TestBuffer device(driver(), node(), MemoryId::gpu(0), bytes);
    device.fill(++seed);
    const std::uint64_t before = carried();
    copy(*context_, {host.address(), device.address(), bytes, stream_->get()});
    EXPECT_TRUE(host.has(seed)) << "when the call returns";
    EXPECT_EQ(carried(), before + 1);
  }
  EXPECT_GT(routes(), 1u);
}

TEST_F(PageableTest, WorkOnStream_KeepsItsOrder) {
  HostRange in(kLarge);
  HostRange out(kLarge);
  TestBuffer first(driver(), node(), MemoryId::gpu(0), kLarge);
  TestBuffer second(driver(), node(), MemoryId::gpu(0), kLarge);
  in.fill(31);
  first.fill(30);
  second.poison();
  const CUstream stream = stream_->get();
  // The old bytes are read before the new ones come, and the new ones before the old come back.
  POLYPATH_CHECK(driver(), memcpy_async(second.address(), first.address(), kLarge, stream));
  copy(*context_, {first.address(), in.address(), kLarge, stream});
  copy(*context_, {out.address(), second.address(), kLarge, stream});
  POLYPATH_CHECK(driver(), memcpy_async(second.address(), first.address(), kLarge, stream));
  synchronize(stream);
  EXPECT_TRUE(out.has(30));
  EXPECT_EQ(second.first_difference(31), std::nullopt);
  EXPECT_EQ(carried(), 2u);
}

TEST_F(PageableTest, DefaultStreams_KeepTheirOrder) {
  for (const CUstream stream : {CU_STREAM_LEGACY, CU_STREAM_PER_THREAD}) {
    HostRange in(kLarge);
    HostRange out(kLarge);
    TestBuffer device(driver(), node(), MemoryId::gpu(0), kLarge);
    in.fill(33);
    device.poison();
    const std::uint64_t before = carried();
    copy(*context_, {device.address(), in.address(), kLarge, stream});
    copy(*context_, {out.address(), device.address(), kLarge, stream});
    EXPECT_TRUE(out.has(33));
    EXPECT_EQ(carried(), before + 2);
  }
}

TEST_F(PageableTest, HeldStream_DelaysNoOther) {
  if (source().virtual_time) GTEST_SKIP() << "needs a second thread that waits";
  HostRange held(kLarge);
  HostRange free(kLarge);
  TestBuffer first(driver(), node(), MemoryId::gpu(0), kLarge);
  TestBuffer other(driver(), node(), MemoryId::gpu(0), kLarge);
  held.fill(41);
  free.fill(42);
  const Stream stream = stream_on(0);
  copy(*context_, {first.address(), free.address(), kLarge, stream_->get()});
  synchronize(stream_->get());
  other.poison();
  std::thread waiting;
  {
    Gate gate(driver(), context_of(0));
    gate.hold(stream.get(), context_of(0));
    waiting = std::thread([&] {
      POLYPATH_CHECK(driver(), ctx_set_current(context_of(0)));
      context_->copy_async({first.address(), held.address(), kLarge, stream.get()});
    });
    copy(*context_, {other.address(), free.address(), kLarge, stream_->get()});
    synchronize(stream_->get());
    gate.open();
  }
  waiting.join();
  synchronize(stream.get());
  EXPECT_EQ(other.first_difference(42), std::nullopt);
  EXPECT_EQ(first.first_difference(41), std::nullopt);
  EXPECT_EQ(carried(), 3u);
}

TEST_F(PageableTest, SeveralThreads_ShareCopyThreads) {
  if (source().virtual_time) GTEST_SKIP() << "callers take turns there";
  constexpr int kThreads = 3;
  std::vector<std::unique_ptr<TestBuffer>> devices;
  for (int t = 0; t < kThreads; ++t)
    devices.push_back(
        std::make_unique<TestBuffer>(driver(), node(), MemoryId::gpu(t % gpus()), kLarge));
  context_of(0);
  std::vector<std::string> wrong(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      const auto index = static_cast<std::size_t>(t);
      TestBuffer& device = *devices[index];
      const Stream stream(driver(), device.context());
      POLYPATH_CHECK(driver(), ctx_set_current(device.context()));
      for (std::uint64_t round = 0; round < 3; ++round) {
        HostRange in(kLarge);
        HostRange out(kLarge);
        in.fill(100 * round + index);
        context_->copy_async({device.address(), in.address(), kLarge, stream.get()});
        in.fill(7);
        context_->copy_async({out.address(), device.address(), kLarge, stream.get()});
        if (!out.has(100 * round + index)) wrong[index] = "other bytes";
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<std::string>(kThreads));
  EXPECT_EQ(carried(), 6u * kThreads);
}

TEST_F(PageableTest, MappedFile_IsRead) {
  const int file = memfd_create("polypath-test", MFD_CLOEXEC);
  ASSERT_GE(file, 0);
  ASSERT_EQ(ftruncate(file, static_cast<off_t>(kLarge)), 0);
  {
    void* const writable = mmap(nullptr, kLarge, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ASSERT_NE(writable, MAP_FAILED);
    fill_pattern({static_cast<std::byte*>(writable), kLarge}, 51);
    munmap(writable, kLarge);
  }
  void* const readable = mmap(nullptr, kLarge, PROT_READ, MAP_PRIVATE, file, 0);
  ASSERT_NE(readable, MAP_FAILED);
  TestBuffer device(driver(), node(), MemoryId::gpu(0), kLarge);
  device.poison();
  copy(*context_,
       {device.address(), reinterpret_cast<CUdeviceptr>(readable), kLarge, stream_->get()});
  synchronize(stream_->get());
  EXPECT_EQ(device.first_difference(51), std::nullopt);
  EXPECT_EQ(carried(), 1u);
  munmap(readable, kLarge);
  close(file);
}

TEST_F(PageableTest, SmallOrOneThread_GoesNatively) {
  HostRange host(kLarge);
  host.fill(61);
  TestBuffer device(driver(), node(), MemoryId::gpu(0), kLarge);
  for (const std::uint64_t bytes : {64 * kKiB, 256 * kKiB - 1}) {
    const Traffic traffic(*context_);
    copy(*context_, {device.address(), host.address(), bytes, stream_->get()});
    EXPECT_TRUE(traffic.went_natively(NativeReason::small, bytes));
  }
  for (const auto& setting : {std::pair{"copy_threads", "1"}, {"routes", "direct"}}) {
    const auto alone = make({setting});
    const Traffic traffic(*alone);
    copy(*alone, {device.address(), host.address(), kLarge, stream_->get()});
    copy(*alone, {host.address(), device.address(), kLarge, stream_->get()});
    EXPECT_EQ(traffic.native(NativeReason::pageable), 2u);
    EXPECT_EQ(alone->smallest_split().pageable_to_gpu, UINT64_MAX);
    EXPECT_TRUE(host.has(61));
  }
}

// What a small copy costs on top of the driver's own: two questions about its memory, once it is
// known how large copies have to be.
TEST_F(PageableTest, SmallCopy_AsksForItsMemoryAlone) {
  if (source().virtual_time) GTEST_SKIP() << "there it is never known";
  constexpr std::uint64_t kBytes = 512 * kKiB;
  FaultInjector counting(source().driver);
  NodeSource counted = source();
  counted.driver = counting.driver();
  Context context(counted, {{"copy_threads", "4"}});
  HostRange host(kBytes);
  TestBuffer device(driver(), node(), MemoryId::gpu(0), kBytes);
  for (const bool is_to_gpu : {true, false}) {
    ASSERT_GT(is_to_gpu ? context.smallest_split().pageable_to_gpu
                        : context.smallest_split().gpu_to_pageable,
              kBytes);
    std::uint64_t calls = 0;
    const auto run = [&](std::uint64_t seed) {
      if (is_to_gpu) {
        host.fill(seed);
        device.poison();
        counting.clear();
        copy(context, {device.address(), host.address(), kBytes, stream_->get()});
        calls = counting.calls();
        synchronize(stream_->get());
        EXPECT_FALSE(device.first_difference(seed));
      } else {
        device.fill(seed);
        host.fill(0);
        counting.clear();
        copy(context, {host.address(), device.address(), kBytes, stream_->get()});
        calls = counting.calls();
        synchronize(stream_->get());
        EXPECT_TRUE(host.has(seed));
      }
    };
    run(1);
    context.wait_prepared();
    const Traffic traffic(context);
    run(2);
    EXPECT_LE(calls, 3u) << "the third is the copy";
    EXPECT_TRUE(traffic.went_natively(NativeReason::no_gain, kBytes));
  }
}

TEST_F(PageableTest, StreamInCapture_GoesNatively) {
  HostRange host(kLarge);
  TestBuffer device(driver(), node(), MemoryId::gpu(0), kLarge);
  POLYPATH_CHECK(driver(),
                 stream_begin_capture(stream_->get(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  const Traffic traffic(*context_);
  copy(*context_, {device.address(), host.address(), kLarge, stream_->get()});
  EXPECT_TRUE(traffic.went_natively(NativeReason::capturing, kLarge));
  CUgraph graph = nullptr;
  POLYPATH_CHECK(driver(), stream_end_capture(stream_->get(), &graph));
  POLYPATH_CHECK(driver(), graph_destroy(graph));
}

TEST_F(PageableTest, GroupWithPageableMemory_Arrives) {
  HostRange in(kLarge);
  HostRange out(kLarge);
  TestBuffer first(driver(), node(), MemoryId::gpu(0), kLarge);
  TestBuffer other(driver(), node(), MemoryId::gpu(0), kLarge);
  in.fill(71);
  first.poison();
  other.fill(72);
  const std::vector<Transfer> group{{first.address(), in.address(), kLarge, stream_->get()},
                                    {out.address(), other.address(), kLarge, stream_->get()}};
  context_->group_copy_async(group);
  synchronize(stream_->get());
  EXPECT_EQ(first.first_difference(71), std::nullopt);
  EXPECT_TRUE(out.has(72));
  EXPECT_EQ(carried(), 2u);
}

// As natively: the calling thread gets the signal, and the program's handler sees it there.
TEST_F(PageableTest, TruncatedFile_SignalsTheCaller) {
  if (!source().virtual_time) GTEST_SKIP() << "a thread of the simulated driver reads it there";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  HostRange host(kLarge);
  TestBuffer device(driver(), node(), MemoryId::gpu(0), kLarge);
  const Transfer transfer{device.address(), host.address(), kLarge, stream_->get()};
  const auto copy_truncated = [&] {
    context_->copy_async(transfer);
    // Pages in the middle are of an empty file now.
    const std::uintptr_t middle = (host.address() + kLarge / 2) / 4096 * 4096;
    const int file = memfd_create("polypath-test", MFD_CLOEXEC);
    if (carried() != 1 || mmap(reinterpret_cast<void*>(middle), 8192, PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED)
      _exit(1);
    struct sigaction action{};
    action.sa_handler = [](int) { _exit(gettid() == getpid() ? 9 : 8); };
    sigaction(SIGBUS, &action, nullptr);
    context_->copy_async(transfer);
    _exit(2);
  };
  EXPECT_EXIT(copy_truncated(), testing::ExitedWithCode(9), "");
}

/// What a child does that was forked in the midst of a copy: 0 where its signals reach handlers of
/// its own, and what it ends with runs to the end.
int run_child_of_copy() {
  struct sigaction action{};
  action.sa_handler = [](int) { _exit(0); };
  sigaction(SIGSEGV, &action, nullptr);
  const long page = sysconf(_SC_PAGESIZE);
  void* const none =
      mmap(nullptr, static_cast<std::size_t>(page), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  *static_cast<volatile char*>(none) = 1;
  return 1;
}

// fork() by any thread, at any of a copy's first calls, leaves the copy whole, and the child has no
// part of it.
TEST_F(PageableTest, ForkDuringCopy_ChangesNothing) {
  std::atomic<int> calls_left{0};
  std::atomic<int> child_result{-1};
  const HookedDriver hooked(driver(), [&](const std::string&) {
    if (--calls_left == 0) child_result = in_child(run_child_of_copy);
  });
  NodeSource forking = source();
  forking.driver = hooked.driver();
  Context context(forking, {{"prepare", "wait"}, {"copy_threads", "4"}});
  TestBuffer device(driver(), node(), MemoryId::gpu(0), kLarge);
  HostRange host(kLarge);
  host.fill(1);
  copy(context, {device.address(), host.address(), kLarge, stream_->get()});
  for (const bool is_to_gpu : {true, false})
    for (const int call : {1, 2, 3, 5, 8, 13, 21}) {
      const std::uint64_t seed = static_cast<std::uint64_t>(call) + (is_to_gpu ? 100 : 200);
      child_result = -1;
      if (is_to_gpu) {
        host.fill(seed);
        device.poison();
        calls_left = call;
        copy(context, {device.address(), host.address(), kLarge, stream_->get()});
      } else {
        device.fill(seed);
        calls_left = call;
        copy(context, {host.address(), device.address(), kLarge, stream_->get()});
      }
      calls_left = 0;
      synchronize(stream_->get());
      EXPECT_EQ(child_result, 0) << call;
      EXPECT_TRUE(is_to_gpu ? !device.first_difference(seed) : host.has(seed)) << call;
    }
  EXPECT_EQ(context.counters().snapshot().pageable, 15u);
}

// A call fails on the way: the driver's copy follows, and the bytes are right.
TEST_F(PageableTest, AnyFailingCall_LeavesNativeCopy) {
  if (!source().virtual_time) GTEST_SKIP() << "calls have no order there";
  constexpr std::uint64_t kBytes = 10 * kMiB + 3;
  FaultInjector faults(source().driver);
  NodeSource failing = source();
  failing.driver = faults.driver();
  Context context(failing, {{"prepare", "wait"}, {"copy_threads", "4"}});
  HostRange host(kBytes);
  TestBuffer device(driver(), node(), MemoryId::gpu(0), kBytes);
  const auto carried = [&] { return context.counters().snapshot().pageable; };
  for (const bool is_to_gpu : {true, false}) {
    const auto run = [&](std::uint64_t seed) {
      if (is_to_gpu) {
        host.fill(seed);
        device.poison();
        context.copy_async({device.address(), host.address(), kBytes, stream_->get()});
      } else {
        device.fill(seed);
        host.fill(0);
        context.copy_async({host.address(), device.address(), kBytes, stream_->get()});
      }
    };
    const auto is_right = [&](std::uint64_t seed) {
      synchronize(stream_->get());
      return is_to_gpu ? !device.first_difference(seed) : host.has(seed);
    };
    run(1);
    EXPECT_TRUE(is_right(1));
    faults.clear();
    const std::uint64_t before = carried();
    run(2);
    EXPECT_TRUE(is_right(2));
    ASSERT_EQ(carried(), before + 1);
    const std::uint64_t calls = faults.calls();
    ASSERT_GT(calls, 20u);
    for (std::uint64_t n = 1; n <= calls; ++n) {
      faults.clear();
      faults.fail_call(n, CUDA_ERROR_UNKNOWN);
      EXPECT_NO_THROW(run(10 + n)) << n << ": " << faults.last_failed();
      EXPECT_TRUE(is_right(10 + n)) << n << ": " << faults.last_failed();
      faults.clear();
      POLYPATH_CHECK(driver(), ctx_set_current(context_of(0)));
    }
    run(3);
    EXPECT_TRUE(is_right(3));
    EXPECT_GT(carried(), before + 2) << "it goes on after failures";
  }
}

TEST_F(PageableTest, FailedPreparation_IsRetriedLater) {
  constexpr std::uint64_t kBytes = 33 * kMiB;
  FaultInjector faults(source().driver);
  NodeSource failing = source();
  failing.driver = faults.driver();
  Context context(failing, {{"prepare", "wait"}, {"copy_threads", "2"}});
  HostRange host(kBytes);
  TestBuffer device(driver(), node(), MemoryId::gpu(0), kBytes);
  const auto carried = [&] { return context.counters().snapshot().pageable; };
  faults.fail("cuMemCreate", 1, CUDA_ERROR_OUT_OF_MEMORY);
  int copies = 0;
  for (; carried() == 0 && copies < 100; ++copies) {
    host.fill(static_cast<std::uint64_t>(copies));
    device.poison();
    context.copy_async({device.address(), host.address(), kBytes, stream_->get()});
    synchronize(stream_->get());
    EXPECT_EQ(device.first_difference(static_cast<std::uint64_t>(copies)), std::nullopt);
  }
  EXPECT_EQ(carried(), 1u);
  EXPECT_GT(copies, 2) << "not with each copy";
}

TEST_F(PageableTest, PinnedMemory_StaysInItsBound) {
  const auto wide = make({{"copy_threads", "64"}});
  HostRange host(kLarge);
  TestBuffer device(driver(), node(), MemoryId::gpu(0), kLarge);
  copy(*wide, {device.address(), host.address(), kLarge, stream_->get()});
  synchronize(stream_->get());
  EXPECT_GT(wide->pinned_slot_bytes(), 0u);
  EXPECT_LE(wide->pinned_slot_bytes(), 256 * kMiB);
}

}  // namespace
}  // namespace polypath::test
