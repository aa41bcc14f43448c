// What others have in flight: transfers are planned next to it, until it is over or its process is
// gone.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <set>
#include <thread>

#include "core/peer_processes.hpp"
#include "registry/registry.hpp"
#include "support/simulated_test.hpp"
#include "support/temporary_folder.hpp"

namespace polypath::test {
namespace {

/// Another process that has bytes under way between two memories, until it is killed.
class Sender {
 public:
  Sender(const std::string& folder, const FlightEnd& source, const FlightEnd& destination) {
    int ready[2] = {};
    if (pipe(ready) != 0) throw std::runtime_error("no pipe");
    pid_ = fork();
    if (pid_ == 0) {
      Registry registry(folder);
      registry.start(
          {source, destination, kSplitBytes, monotonic_ns() + std::uint64_t{600} * 1'000'000'000});
      const char done = 1;
      if (write(ready[1], &done, 1) != 1) _exit(1);
      for (;;) pause();
    }
    char done = 0;
    const bool is_ready = read(ready[0], &done, 1) == 1;
    ::close(ready[0]);
    ::close(ready[1]);
    if (!is_ready) throw std::runtime_error("the other process did not start");
  }
  ~Sender() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;

 private:
  pid_t pid_ = -1;
};

class OtherProcessesTest : public SimulatedTest {
 protected:
  void SetUp() override {
    SimulatedTest::SetUp();
    if (IsSkipped()) return;
    if (gpus() < 4) GTEST_SKIP() << "needs four GPUs";
  }
  FlightEnd gpu(int index) {
    CUuuid uuid{};
    POLYPATH_CHECK(driver(), device_get_uuid(&uuid, index));
    GpuUuid bytes{};
    std::memcpy(bytes.data(), &uuid, sizeof uuid);
    return FlightEnd::of_gpu(bytes);
  }
  static Request pair(int from, int to, std::uint64_t bytes) {
    return {MemoryId::gpu(from), MemoryId::gpu(to), bytes};
  }
  /// Waits until the registry is read again: a process that began or ended is seen then.
  static void let_others_be_seen() {
    std::this_thread::sleep_for(std::chrono::nanoseconds(2 * RegistryTimes{}.look_every_ns));
  }
  [[nodiscard]] std::string registry_folder() const { return folder_.path() / "registry"; }
  OptionArguments settings() { return {{"registry", registry_folder()}}; }

  TemporaryFolder folder_;
};

TEST_F(OtherProcessesTest, PairsOfOthersAreSeenOnceEachAndInOrder) {
  const auto registry = std::make_shared<Registry>(registry_folder());
  PeerProcesses others(registry, driver(), node());
  const Sender a(registry_folder(), gpu(3), gpu(0));
  const Sender b(registry_folder(), gpu(1), gpu(2));
  const Sender c(registry_folder(), gpu(1), gpu(2));
  const Sender hidden(registry_folder(), FlightEnd::of_gpu({std::byte{77}}), gpu(2));
  const Sender host(registry_folder(), gpu(2), FlightEnd::of_host(node().hosts[0].numa));
  others.started(pair(0, 1, kSplitBytes), 1e6);  // its own does not count
  std::vector<Request> pairs;
  others.add_pairs_in_use(pairs);
  const std::vector<Request> expected{
      pair(1, 2, 0), {MemoryId::gpu(2), MemoryId::host(0), 0}, pair(3, 0, 0)};
  EXPECT_EQ(pairs, expected);
}

TEST_F(OtherProcessesTest, TransferIsPublishedForItsPredictedTime) {
  // By a clock of its own, which children inherit as it is.
  static std::uint64_t now_ns = 1'000'000'000;
  const RegistryTimes times{
      .now_ns = []() noexcept { return now_ns; }, .look_every_ns = 0, .long_flight_ns = 0};
  const auto registry = std::make_shared<Registry>(registry_folder(), times);
  PeerProcesses others(registry, driver(), node());
  const auto seen_by_a_child = [&] {
    const pid_t child = fork();
    if (child == 0) {
      Registry other(registry_folder(), times);
      std::vector<InFlightTransfer> flights;
      other.others(flights);
      _exit(static_cast<int>(flights.size()));
    }
    int status = -1;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  };
  EXPECT_EQ(seen_by_a_child(), 0);
  for (int i = 0; i < 3; ++i) others.started(pair(0, 1, kSplitBytes), 0.4e6);
  others.started(pair(1, 0, kSplitBytes), 1e9);  // taken for 1 s
  EXPECT_EQ(seen_by_a_child(), 2) << "one a pair";
  // 3 x 0.4 s after one another, and half of the last as long again.
  now_ns += 1'399'000'000;
  EXPECT_EQ(seen_by_a_child(), 2);
  now_ns += 2'000'000;
  EXPECT_EQ(seen_by_a_child(), 1);
  now_ns += 100'000'000;
  EXPECT_EQ(seen_by_a_child(), 0);
}

TEST_F(OtherProcessesTest, ConcurrentPlan_IsItsPartOfTheGroupPlan) {
  Context context(source(), settings());
  Planner& planner = context.planner();
  const std::vector<Request> ring{pair(0, 1, kSplitBytes), pair(1, 2, kSplitBytes),
                                  pair(2, 3, kSplitBytes), pair(3, 0, kSplitBytes)};
  const Plan together = planner.plan(ring, 0)->plan;
  std::multiset<int> links;
  for (std::size_t own = 0; own < ring.size(); ++own) {
    std::vector<Request> beside;
    for (std::size_t other = 0; other < ring.size(); ++other)
      if (other != own) beside.push_back({ring[other].src, ring[other].dst, 0});
    const auto prepared = planner.plan({&ring[own], 1}, 0, beside);
    ASSERT_EQ(prepared->plan.transfers.size(), 1u);
    const TransferPlan& part = prepared->plan.transfers.front();
    const TransferPlan& whole = together.transfers[own];
    EXPECT_EQ(part.request, ring[own]);
    ASSERT_EQ(part.routes.size(), whole.routes.size());
    std::uint64_t bytes = 0;
    for (std::size_t r = 0; r < part.routes.size(); ++r) {
      EXPECT_EQ(part.routes[r].route, whole.routes[r].route);
      EXPECT_EQ(part.routes[r].bytes, whole.routes[r].bytes);
      bytes += part.routes[r].bytes;
      for (const int leg : part.routes[r].route.legs)
        if (node().links[static_cast<std::size_t>(leg)].from.is_gpu() &&
            node().links[static_cast<std::size_t>(leg)].to.is_gpu())
          links.insert(leg);
    }
    EXPECT_EQ(bytes, kSplitBytes);
    EXPECT_EQ(prepared->schedule.transfers.size(), 1u);
  }
  for (const int link : links)
    EXPECT_EQ(links.count(link), 1u) << "two of the ring use link " << link;
}

TEST_F(OtherProcessesTest, LinksThatOthersUseAreLeftToThem) {
  Context context(source(), settings());
  context.prepare({pair(0, 1, kSplitBytes)});
  const Request own_request = pair(0, 1, kSplitBytes);
  const Request other_request = pair(2, 1, 0);
  const Plan alone = context.plan({own_request});
  const Plan beside = context.planner().plan({&own_request, 1}, 0, {&other_request, 1})->plan;
  ASSERT_NE(alone.transfers.front().routes.size(), beside.transfers.front().routes.size())
      << "nothing to tell the plans apart by";
  const Stream stream = stream_on(0);
  {
    const Sender other(registry_folder(), gpu(2), gpu(1));
    let_others_be_seen();
    const Payload data = payload({MemoryId::gpu(0), MemoryId::gpu(1), kSplitBytes});
    const Traffic traffic(context);
    copy(context, data.transfer(stream.get()));
    synchronize(stream.get());
    EXPECT_TRUE(data.arrived());
    EXPECT_TRUE(beside.native() ? traffic.went_natively(NativeReason::links_in_use, kSplitBytes)
                                : traffic.went_as(beside));
  }
  // Killed in flight: it does not count any more.
  let_others_be_seen();
  const Payload data = payload({MemoryId::gpu(0), MemoryId::gpu(1), kSplitBytes});
  const Traffic traffic(context);
  copy(context, data.transfer(stream.get()));
  synchronize(stream.get());
  EXPECT_TRUE(data.arrived());
  EXPECT_TRUE(traffic.went_as(alone));
}

}  // namespace
}  // namespace polypath::test
