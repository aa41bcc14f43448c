// What other processes tell of the load of links, and what this one tells them: on the simulated
// node with real time, which all processes share.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "registry/registry.hpp"
#include "stuck_events.hpp"
#include "support/simulated_test.hpp"
#include "support/temporary_folder.hpp"

namespace polypath::test {
namespace {

/// No load that is told counts for longer.
constexpr std::uint64_t kForNs = 900'000'000;

/// Another process whose copies occupy links until it is killed.
class Copier {
 public:
  Copier(const std::string& folder, LoadRecord record, std::uint64_t LoadWords::* until) {
    pid_ = fork();
    if (pid_ != 0) return;
    Registry registry(folder);
    for (;;) {
      record.to_host.*until = monotonic_ns() + kForNs;
      registry.tell_loads(std::vector<LoadRecord>{record});
      usleep(20'000);
    }
  }
  ~Copier() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Copier(const Copier&) = delete;
  Copier& operator=(const Copier&) = delete;
  [[nodiscard]] int pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
};

class LoadOfProcesses : public SimulatedTest {
 protected:
  void SetUp() override {
    SimulatedTest::SetUp();
    if (IsSkipped()) return;
    if (source().virtual_time) GTEST_SKIP() << "of several processes";
    context_ = std::make_unique<Context>(
        source(), OptionArguments{{"load", "known"}, {"registry", folder()}});
    bytes_ = min_split(*context_, kGpu0, kGpu1).value_or(0);
    ASSERT_NE(bytes_, 0u);
    context_->prepare({{kGpu0, kGpu1, bytes_}});
    CUuuid uuid{};
    POLYPATH_CHECK(driver(), device_get_uuid(&uuid, 0));
    std::memcpy(record_.gpu.data(), &uuid, sizeof uuid);
  }
  [[nodiscard]] std::string folder() const { return folder_.path() / "registry"; }
  /// Transfers until one of them is counted by `is_so`.
  template <typename Condition>
  void transfer_until(Condition&& is_so) {
    Payload payload = this->payload({kGpu0, kGpu1, bytes_});
    const Stream stream = stream_on(0);
    for (bool was = false; !was && !HasFailure();) {
      payload.renew(random_());
      const Traffic traffic(*context_);
      context_->copy_async(payload.transfer(stream.get()));
      ASSERT_TRUE(completes(stream.get()));
      ASSERT_TRUE(payload.arrived());
      was = is_so(traffic);
    }
  }
  void go_natively() {
    transfer_until(
        [](const Traffic& traffic) { return traffic.native(NativeReason::links_loaded) == 1; });
  }
  void go_split() {
    transfer_until([](const Traffic& traffic) { return traffic.split() == 1; });
  }

  static constexpr MemoryId kGpu0 = MemoryId::gpu(0);
  static constexpr MemoryId kGpu1 = MemoryId::gpu(1);
  TemporaryFolder folder_;
  std::unique_ptr<Context> context_;
  std::uint64_t bytes_ = 0;
  LoadRecord record_;
};

TEST_F(LoadOfProcesses, CopiesOfAnother_AreLeftOut) {
  go_split();
  for (const auto until :
       {&LoadWords::direct_until_ns, &LoadWords::staged_until_ns, &LoadWords::measured_until_ns}) {
    {
      const Copier copier(folder(), record_, until);
      const LoadSource source = until == &LoadWords::measured_until_ns
                                    ? LoadSource::measured_by_other
                                    : LoadSource::other_process;
      const auto is_told = [&](const LinkLoadInfo& info) {
        const Link& link = node().links[static_cast<std::size_t>(info.link)];
        return link.from == kGpu0 && link.to.is_host() && info.state.source == source &&
               info.state.pid == copier.pid();
      };
      // Again where the machine keeps the other process for longer than it told of.
      do {
        go_natively();
      } while (std::ranges::none_of(context_->load().loads(), is_told) && !HasFailure());
    }
    go_split();
  }
}

TEST_F(LoadOfProcesses, OwnCopies_AreTold) {
  // In a child that is there until it has seen a copy of this process.
  const pid_t child = fork();
  if (child == 0) {
    Registry registry(folder());
    std::vector<InFlightTransfer> flights;
    std::vector<OtherLoad> loads;
    for (;;) {
      registry.tell_loads(std::vector<LoadRecord>{record_});
      registry.others(flights, loads, true);
      for (const OtherLoad& load : loads)
        if (load.record.gpu == record_.gpu && load.record.to_host.busy_ns > 0 &&
            load.record.to_host.direct_until_ns > 0 && load.record.from_host.busy_ns == 0)
          _exit(0);
      usleep(1000);
    }
  }
  const Payload copy = payload({kGpu0, MemoryId::host(0), 32 * kMiB});
  const Transfer native = copy.transfer(nullptr);
  int status = -1;
  while (waitpid(child, &status, WNOHANG) == 0) {
    context_->load().note_copy(native.dst, native.src, native.bytes, native.stream);
    usleep(1000);
  }
  EXPECT_EQ(status, 0);
}

// ---- the thread that probes ---------------------------------------------------------------------

class LoadThread : public SimulatedTest {
 protected:
  void SetUp() override {
    SimulatedTest::SetUp();
    if (IsSkipped()) return;
    if (source().virtual_time) GTEST_SKIP() << "without a thread in virtual time";
  }
  static constexpr MemoryId kGpu0 = MemoryId::gpu(0);
  static constexpr MemoryId kGpu1 = MemoryId::gpu(1);
};

/// Its times mean nothing here, so that a route may be taken or not: what it carries is right.
TEST_F(LoadThread, PreparedRoutes_AreProbed) {
  static std::atomic<int> probes = 0;
  static const CudaDriver* original = nullptr;
  original = &driver();
  auto table = std::make_shared<CudaDriver>(driver());
  table->memcpy_async = [](CUdeviceptr dst, CUdeviceptr src, std::size_t bytes, CUstream stream) {
    if (bytes == LinkProbes::kBytes) ++probes;
    return original->memcpy_async(dst, src, bytes, stream);
  };
  NodeSource counting = source();
  counting.driver = table;
  Context context(counting, {{"load", "all"}, {"prepare", "wait"}, {"registry", "off"}});
  const std::uint64_t bytes = min_split(context, kGpu0, kGpu1).value_or(0);
  ASSERT_NE(bytes, 0u);
  Payload payload = this->payload({kGpu0, kGpu1, bytes});
  const Stream stream = stream_on(0);
  // Until the thread has come to one for each link of the host route.
  for (int i = 0; i < 4 || probes < 2; ++i) {
    payload.renew(random_());
    copy(context, payload.transfer(stream.get()));
    ASSERT_TRUE(completes(stream.get()));
    ASSERT_TRUE(payload.arrived());
  }
}

TEST_F(LoadThread, ProbesNeverReturn_RouteIsNotTaken) {
  StuckEvents stuck(driver());
  stuck.stick();
  NodeSource stuck_source = source();
  stuck_source.driver = stuck.driver();
  auto context = std::make_unique<Context>(
      stuck_source, OptionArguments{{"load", "all"}, {"prepare", "wait"}, {"registry", "off"}});
  const std::uint64_t bytes = min_split(*context, kGpu0, kGpu1).value_or(0);
  Payload payload = this->payload({kGpu0, kGpu1, bytes});
  const Stream stream = stream_on(0);
  const Traffic traffic(*context);
  for (int i = 0; i < 3; ++i) {
    payload.renew(random_());
    copy(*context, payload.transfer(stream.get()));
    ASSERT_TRUE(completes(stream.get()));
    EXPECT_TRUE(payload.arrived());
  }
  EXPECT_EQ(traffic.native(NativeReason::links_loaded), 3u);
  while (stuck.count() == 0) std::this_thread::yield();  // until the thread probes
  context.reset();                                       // and nothing hangs
}

}  // namespace
}  // namespace polypath::test
