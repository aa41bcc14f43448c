// Collectives over idle GPUs, of ranks that are processes: each opens memory on idle GPUs that
// another one has made. Every byte is compared.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "base/units.hpp"
#include "core/context.hpp"
#include "driver/check.hpp"
#include "exec/devices.hpp"
#include "process_group.hpp"
#include "schedule_calls.hpp"

namespace polypath::test {
namespace {

void require(bool is_right, const char* what) {
  if (!is_right) throw Error(what);
}

enum class Runs : std::uint8_t { rows, graphs };

/// On a communicator of its own: there is memory on relays for one set of collectives.
void run_over_relays(const RankProcess& self, Runs what) {
  constexpr auto kChoice = AlgorithmOverride::relayed;
  const std::unique_ptr<Communicator> comm = self.create();
  const CudaDriver& driver = comm->driver();
  const CurrentContext current(driver, comm->context());
  Devices devices(self.source().driver, self.source().nvml, self.source().node);
  CollectivesOptions options = kWithCopies;
  options.relays.devices = &devices;
  if (what == Runs::rows) {
    Collectives collectives(*comm, options);
    require(!collectives.relays().empty(), "no relay is known");
    Random random(20261128);
    Random own(static_cast<std::uint64_t>(self.rank()));
    std::vector<PlannedCall> row;
    for (int i = 0; i < 8; ++i)
      row.push_back(call_for(random, self.size(), kChoice, i == 0 ? 3 << 20 : 60000));
    const Stream stream(driver, comm->context());
    const CallRow memory(driver, row, self.rank());
    for (std::size_t i = 0; i < row.size(); ++i) {
      std::this_thread::sleep_for(std::chrono::microseconds(own() % 2000));
      collectives.run(memory.call(row, i), stream.get(), kChoice);
    }
    POLYPATH_CHECK(driver, stream_synchronize(stream.get()));
    comm->check();
    const std::string wrong = memory.difference_of(row);
    require(wrong.empty(), wrong.c_str());
    require(collectives.counts().relayed > 0, "nothing went over a relay");
    comm->exchange({}, {});
  } else {
    GraphGame game(*comm, kChoice, options);
    for (int turn = 0; turn < 2; ++turn) {
      const std::string difference = game.turn();
      require(difference.empty(), difference.c_str());
    }
    require(game.collectives().counts().relayed > 0, "nothing of a graph went over a relay");
    comm->exchange({}, {});
  }
  self.reached("end");
}
RANK_PROGRAM(rows) { run_over_relays(self, Runs::rows); }
RANK_PROGRAM(graphs) { run_over_relays(self, Runs::graphs); }

/// One rank's rows of allreduces that are planned over relays.
class PlannedRows {
 public:
  PlannedRows(Communicator& comm, Collectives& collectives)
      : comm_(comm),
        collectives_(collectives),
        own_(static_cast<std::uint64_t>(comm.rank())),
        row_(kCalls),
        stream_(comm.driver(), comm.context()) {
    Random random(31);
    for (PlannedCall& call : row_) {
      call.what.ranks = static_cast<std::uint32_t>(comm.size());
      call.what.count = (comm.size() == 2 ? 1 << 20 : 4 << 20) + random() % 4096;
      call.images = images_of(random, call.what);
    }
    memory_.emplace(comm.driver(), row_, comm.rank());
  }

  static constexpr std::size_t kCalls = 4;

  /// From skewed starts. How many calls were relayed, the same on all ranks.
  std::uint64_t run(const std::function<void()>& before_call = [] {}) {
    const std::uint64_t before = collectives_.counts().relayed;
    const std::uint64_t without = collectives_.counts().without_relays;
    memory_->reset(row_);
    comm_.exchange({}, {});
    for (std::size_t i = 0; i < row_.size(); ++i) {
      std::this_thread::sleep_for(std::chrono::microseconds(own_() % 2000));
      before_call();
      collectives_.run(memory_->call(row_, i), stream_.get());
      if (i % 2 == 1) comm_.exchange({}, {});
    }
    POLYPATH_CHECK(comm_.driver(), stream_synchronize(stream_.get()));
    comm_.check();
    const std::string wrong = memory_->difference_of(row_);
    require(wrong.empty(), wrong.c_str());
    const std::uint64_t relayed = collectives_.counts().relayed - before;
    require(relayed + collectives_.counts().without_relays - without == kCalls,
            "calls went another way");
    std::vector<std::uint64_t> all(static_cast<std::size_t>(comm_.size()));
    comm_.exchange(std::as_bytes(std::span(&relayed, 1)), std::as_writable_bytes(std::span(all)));
    for (const std::uint64_t each : all) require(each == relayed, "ranks planned unlike");
    return relayed;
  }
  /// Rows until one is relayed as a whole, or not at all.
  void run_until(bool is_relayed, const std::function<void()>& before_call = [] {}) {
    constexpr int kMaxRows = 50;
    const std::uint64_t aim = is_relayed ? kCalls : 0;
    for (int rows = 0; rows < kMaxRows; ++rows)
      if (run(before_call) == aim) return;
    throw Error(is_relayed ? "relays are not used" : "relays are used next to others");
  }
  [[nodiscard]] CUstream stream() const noexcept { return stream_.get(); }

 private:
  Communicator& comm_;
  Collectives& collectives_;
  Random own_;
  std::vector<PlannedCall> row_;
  Stream stream_;
  std::optional<CallRow> memory_;
};

/// No page of the driver holds memory of two GPUs; one of the simulated driver may.
constexpr std::uint64_t kBuffer = 16 * kMiB;
constexpr std::uint64_t kInside = 4 * kMiB;

/// Copies of one process to a relay, which its monitor is told of, change the plans of all.
RANK_PROGRAM(relay_load) {
  const std::unique_ptr<Communicator> comm = self.create();
  const CudaDriver& driver = comm->driver();
  const CurrentContext current(driver, comm->context());
  Context context(self.source(), {{"profile", "off"}, {"registry", "off"}, {"load", "known"}});
  CollectivesOptions options = kWithCopies;
  options.relays = {&context.devices(), &context.load()};
  options.max_blocks = self.size() == 2 ? 16 : 48;  // calls are planned over relays
  {
    Collectives collectives(*comm, options);
    PlannedRows rows(*comm, collectives);
    rows.run();
    collectives.wait_relays();
    rows.run_until(true);
    const DeviceBytes from(driver, kBuffer);
    std::optional<DeviceBytes> to;
    {
      const CurrentContext of_relay(driver, context.devices().context(self.size()));
      to.emplace(driver, kBuffer);
    }
    const Stream other(driver, comm->context());
    const auto copy = [&] {
      if (self.rank() != self.size() - 1) return;
      const CUdeviceptr source = from.address() + kInside;
      const CUdeviceptr target = to->address() + kInside;
      context.load().note_copy(target, source, 64 * kGiB, other.get());
      POLYPATH_CHECK(driver, memcpy_async(target, source, kMiB, other.get()));
    };
    rows.run_until(false, copy);
    const std::uint64_t before = collectives.counts().relayed;
    require(rows.run(copy) == 0, "relays are used next to others");
    require(collectives.counts().relayed == before, "something went over a relay");
    context.load().use(context.node());  // nothing is known of copies any more
    rows.run_until(true);
    require(collectives.counts().relayed > before, "nothing went over a relay");
    comm->exchange({}, {});
  }
  self.reached("end");
}

class RelayProcesses : public testing::TestWithParam<int> {
 protected:
  static void run(const char* program) {
    if (gpus_up_to(4) < 4) GTEST_SKIP() << "needs four GPUs";
    ProcessGroup group(program, GetParam());
    group.pass("end");
    expect_all_well(group, GetParam());
  }
};

TEST_P(RelayProcesses, SkewedRows) { run("rows"); }
TEST_P(RelayProcesses, Graphs) { run("graphs"); }
TEST_P(RelayProcesses, CopiesOfOneProcess_AllLeaveRelays) { run("relay_load"); }

INSTANTIATE_TEST_SUITE_P(Ranks, RelayProcesses, testing::Values(2, 3),
                         [](const auto& param_info) { return std::to_string(param_info.param); });

}  // namespace
}  // namespace polypath::test
