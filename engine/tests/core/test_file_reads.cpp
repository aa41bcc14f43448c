// Reads from files to GPUs: every byte, the order on streams, which routes took them, and what the
// caller learns of a file that cannot be read. In virtual time the calling thread does the copy
// threads' work; in functional mode they do.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "driver/fault_injection.hpp"
#include "support/background_hold.hpp"
#include "support/gate.hpp"
#include "support/simulated_test.hpp"
#include "tune/pattern.hpp"

namespace polypath::test {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

/// Several chunks for each thread, and more than one link carries.
constexpr std::uint64_t kFileBytes = 24 * kMiB + 4099;
/// Bytes of a file before those that are read.
constexpr std::uint64_t kOffset = 12'345;
constexpr std::byte kPoisonByte{0xA5};

/// A file without a name: other bytes up to kOffset, then the pattern.
class TestFile {
 public:
  TestFile(std::uint64_t bytes, std::uint64_t seed) {
    std::string name = (std::filesystem::temp_directory_path() / "polypath-XXXXXX").string();
    descriptor_ = mkstemp(name.data());
    if (descriptor_ < 0) throw std::runtime_error("no temporary file");
    unlink(name.c_str());
    std::vector<std::byte> contents(kOffset + bytes, std::byte{0x3C});
    fill_pattern(std::span(contents).subspan(kOffset), seed);
    if (write(descriptor_, contents.data(), contents.size()) !=
        static_cast<ssize_t>(contents.size()))
      throw std::runtime_error("the temporary file cannot be written");
  }
  ~TestFile() { close(descriptor_); }
  TestFile(const TestFile&) = delete;
  TestFile& operator=(const TestFile&) = delete;

  [[nodiscard]] int descriptor() const { return descriptor_; }
  /// So that this many bytes after kOffset are left.
  void truncate_to(std::uint64_t bytes) const {
    ASSERT_EQ(ftruncate(descriptor_, static_cast<off_t>(kOffset + bytes)), 0);
  }

 private:
  int descriptor_;
};

class FileReadTest : public SimulatedTest {
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
  FileRead read_of(const TestFile& file, CUdeviceptr dst, std::uint64_t bytes) {
    return {{file.descriptor(), kOffset}, dst, bytes, stream_->get()};
  }
  /// Reads in the context of the stream's GPU.
  void read(Context& context, const FileRead& read) {
    POLYPATH_CHECK(driver(), ctx_set_current(context_of(0)));
    context.read_async(read);
  }
  /// Whether bytes [77, 77 + bytes) have the pattern, and all others are poison.
  bool has_only(const TestBuffer& device, std::uint64_t bytes, std::uint64_t seed) {
    std::vector<std::byte> there = read_back(driver(), device, 0, device.size());
    if (first_difference(std::span(there).subspan(77, bytes), seed)) return false;
    there.erase(there.begin() + 77, there.begin() + 77 + static_cast<std::ptrdiff_t>(bytes));
    return std::ranges::all_of(there, [](std::byte byte) { return byte == kPoisonByte; });
  }
  Counters::Snapshot counts() { return context_->counters().snapshot(); }

  std::unique_ptr<Context> context_;
  std::optional<Stream> stream_;
};

TEST_F(FileReadTest, EveryByteArrives) {
  std::uint64_t seed = 10;
  for (const std::uint64_t bytes : {7 * kMiB, 7 * kMiB + 1, 9 * kMiB - 7, kFileBytes, 64 * kMiB}) {
    SCOPED_TRACE(bytes);
    const TestFile file(bytes, ++seed);
    TestBuffer device(driver(), node(), MemoryId::gpu(0), bytes + 200);
    device.poison();
    const std::uint64_t before = counts().files;
    const off_t position = lseek(file.descriptor(), 0, SEEK_CUR);
    read(*context_, read_of(file, device.address() + 77, bytes));
    file.truncate_to(0);  // the call has read it
    synchronize(stream_->get());
    EXPECT_TRUE(has_only(device, bytes, seed));
    EXPECT_EQ(counts().files, before + 1);
    EXPECT_EQ(lseek(file.descriptor(), 0, SEEK_CUR), position);
  }
  EXPECT_EQ(counts().pageable, 0u);
  EXPECT_GT(counts().routes.size(), 1u) << "links of several GPUs carry a part";
}

// A long read begins before the routes over other GPUs are ready, on the GPU's own link.
TEST_F(FileReadTest, FirstRead_GoesOverOwnLinkMeanwhile) {
  if (!source().virtual_time) GTEST_SKIP() << "the hold would stop the copy threads as well";
  constexpr std::uint64_t kBytes = 256 * kMiB + 77;
  BackgroundHold hold(driver());
  NodeSource held = source();
  held.driver = hold.driver();
  context_ = std::make_unique<Context>(held, OptionArguments{{"copy_threads", "16"}});
  const TestFile file(kBytes, 71);
  TestBuffer device(driver(), node(), MemoryId::gpu(0), kBytes + 200);
  const auto read_all = [&] {
    device.poison();
    context_->reset_counters();
    read(*context_, read_of(file, device.address() + 77, kBytes));
    synchronize(stream_->get());
    EXPECT_TRUE(has_only(device, kBytes, 71));
    EXPECT_EQ(std::ranges::max(counts().native), 0u);
    EXPECT_EQ(counts().files, 1u) << "one read, whatever its parts";
    EXPECT_EQ(counts().bytes, kBytes);
  };
  read_all();
  EXPECT_EQ(counts().routes.size(), 1u);
  hold.end();
  context_->wait_prepared();
  read_all();
  EXPECT_GT(counts().routes.size(), 1u);
}

TEST_F(FileReadTest, SmallOrOneThread_GoesNatively) {
  const TestFile file(kFileBytes, 61);
  TestBuffer device(driver(), node(), MemoryId::gpu(0), kFileBytes + 200);
  const auto check = [&](Context& context, std::uint64_t bytes, NativeReason reason) {
    device.poison();
    const Traffic traffic(context);
    read(context, read_of(file, device.address() + 77, bytes));
    EXPECT_TRUE(traffic.went_natively(reason, bytes)) << bytes;
    synchronize(stream_->get());
    EXPECT_TRUE(has_only(device, bytes, 61)) << bytes;
  };
  for (const std::uint64_t bytes : {1 + 0 * kKiB, 64 * kKiB, 256 * kKiB - 1})
    check(*context_, bytes, NativeReason::small);
  for (const auto& setting : {std::pair{"copy_threads", "1"}, {"routes", "direct"}})
    check(*make({setting}), kFileBytes, NativeReason::pageable);
}

TEST_F(FileReadTest, WorkOnStream_KeepsItsOrder) {
  const TestFile file(kFileBytes, 31);
  TestBuffer first(driver(), node(), MemoryId::gpu(0), kFileBytes);
  TestBuffer second(driver(), node(), MemoryId::gpu(0), kFileBytes);
  TestBuffer third(driver(), node(), MemoryId::gpu(0), kFileBytes);
  first.fill(30);
  second.poison();
  const CUstream stream = stream_->get();
  POLYPATH_CHECK(driver(), memcpy_async(second.address(), first.address(), kFileBytes, stream));
  read(*context_, read_of(file, first.address(), kFileBytes));
  POLYPATH_CHECK(driver(), memcpy_async(third.address(), first.address(), kFileBytes, stream));
  synchronize(stream);
  EXPECT_EQ(second.first_difference(30), std::nullopt);
  EXPECT_EQ(third.first_difference(31), std::nullopt);
  EXPECT_EQ(counts().files, 1u);
}

TEST_F(FileReadTest, HeldStream_DelaysNoOther) {
  if (source().virtual_time) GTEST_SKIP() << "needs a second thread that waits";
  const TestFile held(kFileBytes, 41);
  const TestFile free(kFileBytes, 42);
  TestBuffer first(driver(), node(), MemoryId::gpu(0), kFileBytes);
  TestBuffer other(driver(), node(), MemoryId::gpu(0), kFileBytes);
  const Stream stream = stream_on(0);
  read(*context_, read_of(free, first.address(), kFileBytes));
  synchronize(stream_->get());
  other.poison();
  std::thread waiting;
  {
    Gate gate(driver(), context_of(0));
    gate.hold(stream.get(), context_of(0));
    waiting = std::thread([&] {
      POLYPATH_CHECK(driver(), ctx_set_current(context_of(0)));
      context_->read_async(
          {{held.descriptor(), kOffset}, first.address(), kFileBytes, stream.get()});
    });
    read(*context_, read_of(free, other.address(), kFileBytes));
    synchronize(stream_->get());
    EXPECT_EQ(counts().files, 2u);
    gate.open();
  }
  waiting.join();
  synchronize(stream.get());
  EXPECT_EQ(other.first_difference(42), std::nullopt);
  EXPECT_EQ(first.first_difference(41), std::nullopt);
  EXPECT_EQ(counts().files, 3u);
}

TEST_F(FileReadTest, SeveralThreads_ShareDescriptor) {
  if (source().virtual_time) GTEST_SKIP() << "callers take turns there";
  constexpr int kThreads = 3;
  const TestFile file(kFileBytes, 43);
  std::vector<std::unique_ptr<TestBuffer>> devices;
  for (int t = 0; t < kThreads; ++t)
    devices.push_back(
        std::make_unique<TestBuffer>(driver(), node(), MemoryId::gpu(t % gpus()), kFileBytes));
  context_of(0);
  std::vector<std::string> wrong(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      const auto index = static_cast<std::size_t>(t);
      TestBuffer& device = *devices[index];
      const Stream stream(driver(), device.context());
      POLYPATH_CHECK(driver(), ctx_set_current(device.context()));
      for (int round = 0; round < 3; ++round) {
        device.poison();
        context_->read_async(
            {{file.descriptor(), kOffset}, device.address(), kFileBytes, stream.get()});
        POLYPATH_CHECK(driver(), stream_synchronize(stream.get()));
        if (device.first_difference(43)) wrong[index] = "other bytes";
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<std::string>(kThreads));
  EXPECT_EQ(counts().files, 3u * kThreads);
}

TEST_F(FileReadTest, UnusableArguments_AreRefused) {
  TestFile file(kFileBytes, 51);
  TestBuffer device(driver(), node(), MemoryId::gpu(0), kFileBytes);
  TestBuffer pinned(driver(), node(), MemoryId::host(0), kFileBytes);
  std::vector<std::byte> pageable(kFileBytes);
  device.poison();
  const auto refused = [&](FileRead what, const char* message) {
    EXPECT_THAT([&] { read(*context_, what); }, ThrowsMessage<InvalidArgument>(HasSubstr(message)));
  };
  const FileRead good = read_of(file, device.address(), kFileBytes);
  FileRead bad = good;
  bad.file.descriptor = -1;
  refused(bad, "Bad file descriptor");
  const int folder = open("/tmp", O_RDONLY | O_DIRECTORY);
  bad.file.descriptor = folder;
  refused(bad, "directory");
  close(folder);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  bad.file.descriptor = ends[0];
  refused(bad, "pipe");
  bad.file.descriptor = ends[1];
  refused(bad, "not open for reading");
  close(ends[0]);
  close(ends[1]);
  bad = good;
  bad.file.offset = UINT64_MAX - 5;
  refused(bad, "past the end of any file");
  bad = good;
  bad.dst = 0;
  refused(bad, "dst is null");
  bad.dst = pinned.address();
  refused(bad, "memory of the host");
  bad.dst = reinterpret_cast<CUdeviceptr>(pageable.data());
  refused(bad, "memory of the host");
  bad = good;
  bad.dst += 1;
  refused(bad, "passes the end of its allocation");
  bad = good;
  bad.bytes += 1;
  bad.dst = device.address();
  EXPECT_THAT([&] { read(*context_, bad); },
              ThrowsMessage<FileError>(HasSubstr("fewer than 12345 + ")));
  bad.bytes = 0;
  EXPECT_NO_THROW(read(*context_, bad));
  synchronize(stream_->get());
  const auto there = read_back(driver(), device, 0, kFileBytes);
  EXPECT_TRUE(std::ranges::all_of(there, [](std::byte byte) { return byte == kPoisonByte; }));
  EXPECT_EQ(counts().files, 0u);
}

/// Cuts the file when the driver is asked to record the n-th event.
class CutsFile {
 public:
  static inline const TestFile* file = nullptr;
  static inline CUresult (*record)(CUevent, CUstream) = nullptr;
  static inline std::atomic<int> left{0};
  static CUresult record_event(CUevent event, CUstream stream) {
    if (--left == 0) file->truncate_to(kFileBytes / 2);
    return record(event, stream);
  }
};

TEST_F(FileReadTest, FileTruncatedMeanwhile_IsTold) {
  NodeSource cutting = source();
  auto driver_of_test = std::make_shared<CudaDriver>(*source().driver);
  CutsFile::record = driver_of_test->event_record;
  driver_of_test->event_record = &CutsFile::record_event;
  cutting.driver = driver_of_test;
  Context context(cutting, {{"prepare", "wait"}, {"copy_threads", "4"}});
  TestBuffer device(driver(), node(), MemoryId::gpu(0), kFileBytes);
  {
    const TestFile file(kFileBytes, 52);
    read(context, read_of(file, device.address(), kFileBytes));
    ASSERT_EQ(context.counters().snapshot().files, 1u);
  }
  for (int cut = 2; cut < 8; ++cut) {
    const TestFile file(kFileBytes, 53);
    CutsFile::file = &file;
    CutsFile::left = cut;
    EXPECT_THAT([&] { read(context, read_of(file, device.address(), kFileBytes)); },
                ThrowsMessage<FileError>(HasSubstr("the file ends at byte ")));
    // Nothing is under way any more, and the next read is as if there had been none.
    const std::uint64_t before = context.counters().snapshot().files;
    const TestFile whole(kFileBytes, 54);
    device.poison();
    read(context, read_of(whole, device.address(), kFileBytes));
    synchronize(stream_->get());
    EXPECT_EQ(device.first_difference(54), std::nullopt);
    EXPECT_EQ(context.counters().snapshot().files, before + 1);
  }
  EXPECT_EQ(context.counters().snapshot().failed, 6u);
}

TEST_F(FileReadTest, NativeReadOfTruncatedFile_IsTold) {
  const auto alone = make({{"copy_threads", "1"}});
  const int file = open("/proc/self/cmdline", O_RDONLY);  // its size is 0, and not its contents
  ASSERT_GE(file, 0);
  TestBuffer device(driver(), node(), MemoryId::gpu(0), kFileBytes);
  EXPECT_THROW(read(*alone, {{file, 0}, device.address(), kFileBytes, stream_->get()}), FileError);
  close(file);
}

TEST_F(FileReadTest, StreamInCapture_IsRefused) {
  const TestFile file(kFileBytes, 55);
  TestBuffer device(driver(), node(), MemoryId::gpu(0), kFileBytes);
  POLYPATH_CHECK(driver(),
                 stream_begin_capture(stream_->get(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  for (const std::uint64_t bytes : {64 * kKiB, kFileBytes})
    EXPECT_THROW(read(*context_, read_of(file, device.address(), bytes)), NotSupported);
  CUgraph graph = nullptr;
  POLYPATH_CHECK(driver(), stream_end_capture(stream_->get(), &graph));
  POLYPATH_CHECK(driver(), graph_destroy(graph));
}

// A call fails on the way: a native read follows, and the bytes are right. Where the call that
// fails is one of the native read's, the caller is told.
TEST_F(FileReadTest, AnyFailingCall_LeavesNativeRead) {
  if (!source().virtual_time) GTEST_SKIP() << "calls have no order there";
  constexpr std::uint64_t kBytes = 8 * kMiB + 3;
  FaultInjector faults(source().driver);
  NodeSource failing = source();
  failing.driver = faults.driver();
  Context context(failing, {{"prepare", "wait"}, {"copy_threads", "4"}});
  TestBuffer device(driver(), node(), MemoryId::gpu(0), kBytes);
  const auto run = [&](std::uint64_t seed) {
    const TestFile file(kBytes, seed);
    device.poison();
    context.read_async(read_of(file, device.address(), kBytes));
  };
  POLYPATH_CHECK(driver(), ctx_set_current(context_of(0)));
  run(1);
  faults.clear();
  const std::uint64_t before = context.counters().snapshot().files;
  run(2);
  ASSERT_EQ(context.counters().snapshot().files, before + 1);
  const std::uint64_t calls = faults.calls();
  ASSERT_GT(calls, 20u);
  for (std::uint64_t n = 1; n <= calls; ++n) {
    faults.clear();
    faults.fail_call(n, CUDA_ERROR_UNKNOWN);
    EXPECT_NO_THROW(run(10 + n)) << n << ": " << faults.last_failed();
    synchronize(stream_->get());
    EXPECT_EQ(device.first_difference(10 + n), std::nullopt) << n << ": " << faults.last_failed();
    faults.clear();
    POLYPATH_CHECK(driver(), ctx_set_current(context_of(0)));
  }
  run(3);
  synchronize(stream_->get());
  EXPECT_EQ(device.first_difference(3), std::nullopt);
  EXPECT_GT(context.counters().snapshot().files, before + 2) << "it goes on after failures";
}

}  // namespace
}  // namespace polypath::test
