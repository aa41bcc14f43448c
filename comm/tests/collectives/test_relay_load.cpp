// Collectives over idle GPUs next to copies of others on the links of those, in virtual time: never
// slower than without them next to the same copies, and others keep their share. Ranks are threads.
// Every byte is compared.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "core/context.hpp"
#include "driver/check.hpp"
#include "driver/context_guard.hpp"
#include "driver/resources.hpp"
#include "group.hpp"
#include "schedule_calls.hpp"
#include "support/driver_extras.hpp"
#include "timed_calls.hpp"

namespace polypath::test {
namespace {

constexpr int kGpus = 4;
/// Three times as many as carry what a link does: so calls are as fast as links, with and without
/// relays.
constexpr int kBlocks = 36;
/// Calls without a pause. Single ones would be timed with the skew of their starts.
constexpr int kRow = 6;
/// Rows that are alike in sequence, and until a change that must come.
constexpr int kSettled = 2;
constexpr int kMaxRows = 32;
/// Until relays are used again. A probe that met a rank's own tiles holds a link back for some time.
constexpr int kMaxIdleRows = 128;
/// Rows that may be slower after others begin: those that find out, of which a slight delay takes
/// two samples, and those in which the level changes. Ranks on threads have one monitor: of three
/// ranks it drops samples that meet another rank's issue.
constexpr int kSlowRows = 16;
constexpr double kNotSlower = 1.02;
/// Rates are counted in blocks, over a row.
constexpr double kRateVaries = 1.05;
constexpr std::uint64_t kBlockBytes = 256 * kKiB;

PlannedCall relayed_call(CollectiveOp op, int ranks) {
  Random random(7);
  PlannedCall call;
  call.what.op = op;
  call.what.ranks = static_cast<std::uint32_t>(ranks);
  call.what.count = 32 * kMiB / sizeof(float);
  if (op == CollectiveOp::all_gather) call.what.count /= call.what.ranks;
  call.images = images_of(random, call.what);
  return call;
}

/// One rank's rows of calls.
class Rank {
 public:
  Rank(Communicator& comm, const CollectivesOptions& options, CollectiveOp op)
      : comm_(comm),
        collectives_(comm, options),
        calls_(comm, collectives_, relayed_call(op, comm.size())) {}

  double row_us(AlgorithmOverride choice = AlgorithmOverride::planned, int calls = kRow) {
    relayed_ = collectives_.counts().relayed;
    without_ = collectives_.counts().without_relays;
    row_ = static_cast<std::uint64_t>(calls);
    return calls_.time(choice, calls);
  }
  /// The longest of some rows without relays: times vary with what threads meet.
  double without_us() {
    return std::ranges::max(std::array{row_us(AlgorithmOverride::alone),
                                       row_us(AlgorithmOverride::alone),
                                       row_us(AlgorithmOverride::alone)});
  }
  /// How many calls of the latest row were relayed. The others count as without relays.
  [[nodiscard]] std::uint64_t relayed() const {
    const std::uint64_t calls = collectives_.counts().relayed - relayed_;
    EXPECT_EQ(calls + collectives_.counts().without_relays - without_, row_);
    return calls;
  }
  /// Whether all calls of the latest row were relayed, on all ranks.
  [[nodiscard]] bool uses_relays() const {
    const std::uint8_t own = relayed() == row_ ? 1 : 0;
    std::vector<std::uint8_t> all(static_cast<std::size_t>(comm_.size()));
    comm_.exchange(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all)));
    return std::ranges::all_of(all, [](std::uint8_t uses) { return uses != 0; });
  }
  /// Rows until all ranks use relays. The last one's time.
  double use_relays() {
    row_us();
    collectives_.wait_relays();
    double us = 0;
    int alike = 0;
    for (int rows = 0; alike < kSettled && rows < kMaxIdleRows; ++rows) {
      us = row_us();
      alike = uses_relays() ? alike + 1 : 0;
    }
    EXPECT_EQ(alike, kSettled) << "relays are not used";
    return us;
  }
  /// Rows until some in sequence are not slower than `limit_us`, with relays or without. The last
  /// one's time.
  double settle(double limit_us) {
    double us = 0;
    int slower = 0;
    int alike = 0;
    for (int rows = 0; alike < kSettled && rows < kMaxRows; ++rows) {
      us = row_us();
      const bool is_slower = us > limit_us;
      slower += is_slower ? 1 : 0;
      const bool is_changing = relayed() != 0 && relayed() != kRow;
      alike = is_slower || is_changing ? 0 : alike + 1;
    }
    EXPECT_EQ(alike, kSettled);
    EXPECT_LE(slower, kSlowRows);
    return us;
  }
  /// `begin` on rank 0, before any other call.
  void on_first(const std::function<void()>& begin) {
    comm_.exchange({}, {});
    if (comm_.rank() == 0) begin();
    comm_.exchange({}, {});
  }
  [[nodiscard]] TimedCalls& calls() noexcept { return calls_; }

 private:
  Communicator& comm_;
  Collectives collectives_;
  TimedCalls calls_;
  std::uint64_t relayed_ = 0;
  std::uint64_t without_ = 0;
  std::uint64_t row_ = 0;
};

class RelayLoad : public testing::Test {
 protected:
  void SetUp() override {
    if (gpus_up_to(kGpus) < kGpus || !in_virtual_time()) GTEST_SKIP() << "of a simulated node";
    context_.reset(new Context(group_node(), {{"profile", "off"}, {"registry", "off"}}));
  }
  [[nodiscard]] static const CudaDriver& driver() { return *group_node().driver; }
  [[nodiscard]] CollectivesOptions options(int ranks) {
    CollectivesOptions options = kWithCopies;
    options.max_blocks = (ranks - 1) * kBlocks;
    options.relays = {&context_->devices(), &context_->load()};
    return options;
  }

  std::unique_ptr<Context> context_;
};

struct TrafficCase {
  const char* name;
  CollectiveOp op;
  const char* from;
  const char* to;
  int programs;  ///< that copy over the link without a pause
  int ranks = 2;
};
void PrintTo(const TrafficCase& traffic, std::ostream* to) { *to << traffic.name; }

class OtherPrograms : public RelayLoad, public testing::WithParamInterface<TrafficCase> {};

TEST_P(OtherPrograms, NeitherIsSlower) {
  const TrafficCase& traffic = GetParam();
  std::vector<std::unique_ptr<ForeignCopies>> others;
  Group group(traffic.ranks);
  group.run([&](Communicator& comm) {
    Rank rank(comm, options(traffic.ranks), traffic.op);
    const double idle_us = rank.use_relays();
    const double idle_without_us = rank.without_us();
    rank.on_first([&] {
      for (int i = 0; i < traffic.programs; ++i)
        others.push_back(
            std::make_unique<ForeignCopies>(driver(), traffic.from, traffic.to, 4, kBlockBytes));
    });
    rank.calls().counter = [&] {
      std::uint64_t blocks = 0;
      for (const auto& each : others) blocks += each->blocks();
      return blocks;
    };
    const double without_us = rank.without_us();
    const double others_rate = rank.calls().rate();
    const double fair_share = others_rate * traffic.programs / (traffic.programs + 1);
    const double us = rank.settle(kNotSlower * without_us);
    const bool is_shared = rank.relayed() > 0;
    EXPECT_GE(rank.calls().rate(), (is_shared ? fair_share : others_rate) / kRateVaries);
    EXPECT_FALSE(is_shared && traffic.programs > 1);
    if (comm.rank() == 0)
      std::cout << "row in us: idle " << idle_us << ", next to others " << us << ", without relays "
                << without_us << "; idle without relays " << idle_without_us << "; rate of others "
                << rank.calls().rate() / others_rate << (is_shared ? ", shared\n" : "\n");
    rank.calls().counter = {};
    rank.on_first([&] { others.clear(); });
    EXPECT_LE(rank.use_relays(), kNotSlower * idle_without_us);
    comm.exchange({}, {});
  });
}

INSTANTIATE_TEST_SUITE_P(
    Links, OtherPrograms,
    testing::Values(TrafficCase{"ToRelay", CollectiveOp::allreduce, "gpu0", "gpu2", 4},
                    TrafficCase{"FromRelay", CollectiveOp::all_gather, "gpu2", "gpu1", 4},
                    TrafficCase{"FromRelayOfThree", CollectiveOp::allreduce, "gpu3", "gpu1", 4, 3},
                    TrafficCase{"OneFromRelay", CollectiveOp::all_gather, "gpu3", "gpu0", 1}),
    [](const auto& each) { return std::string(each.param.name); });

/// Copies of this process on another stream, which its monitor is told of: those of the interposed
/// driver.
TEST_F(RelayLoad, NotedCopies_CallsLeaveTheRelays) {
  constexpr std::uint64_t kCopyBytes = 64 * kMiB;
  constexpr int kCopies = 16;
  constexpr int kCalls = 12;
  Group group(2);
  group.run([&](Communicator& comm) {
    Rank rank(comm, options(2), CollectiveOp::allreduce);
    rank.use_relays();
    const double idle_without_us = rank.without_us();
    const Stream other(driver(), comm.context());
    const DeviceBytes from(driver(), kCopyBytes);
    CUcontext relay = context_->devices().context(2);
    std::optional<DeviceBytes> to;
    {
      const CurrentContext current(driver(), relay);
      to.emplace(driver(), kCopyBytes);
    }
    const auto copy = [&] {
      for (int i = 0; i < kCopies; ++i) {
        context_->load().note_copy(to->address(), from.address(), kCopyBytes, other.get());
        POLYPATH_CHECK(driver(),
                       memcpy_async(to->address(), from.address(), kCopyBytes, other.get()));
      }
    };
    const auto wait = [&] { POLYPATH_CHECK(driver(), stream_synchronize(other.get())); };
    const auto next_to_copies_us = [&](AlgorithmOverride choice) {
      if (comm.rank() == 0) rank.calls().before_row = copy;
      const double us = rank.row_us(choice, kCalls);
      rank.calls().before_row = {};
      rank.on_first(wait);
      return us;
    };
    const double without_us = std::max(next_to_copies_us(AlgorithmOverride::alone),
                                       next_to_copies_us(AlgorithmOverride::alone));
    for (int changing = 0; changing < 2; ++changing) next_to_copies_us(AlgorithmOverride::planned);
    EXPECT_LE(next_to_copies_us(AlgorithmOverride::planned), kNotSlower * without_us);
    EXPECT_EQ(rank.relayed(), 0u);
    EXPECT_LE(rank.use_relays(), kNotSlower * idle_without_us);
    comm.exchange({}, {});
  });
}

}  // namespace
}  // namespace polypath::test
