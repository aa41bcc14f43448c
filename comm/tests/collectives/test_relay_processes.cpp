// Collectives over idle GPUs, of ranks that are processes: a relay opens the scratch of ranks of
// other processes. Every byte is compared.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "base/error.hpp"
#include "driver/check.hpp"
#include "exec/devices.hpp"
#include "process_group.hpp"
#include "schedule_calls.hpp"

namespace polypath::test {
namespace {

void require(bool is_right, const char* what) {
  if (!is_right) throw Error(what);
}

RANK_PROGRAM(relays) {
  const std::unique_ptr<Communicator> comm = self.create();
  const CudaDriver& driver = comm->driver();
  const CurrentContext current(driver, comm->context());
  Devices devices(self.source().driver, self.source().nvml, self.source().node);
  CollectivesOptions options = kWithCopies;
  options.relays.devices = &devices;
  {
    Collectives collectives(*comm, options);
    require(!collectives.relays().empty(), "no relay is known");
    Random random(20261128);
    Random own(static_cast<std::uint64_t>(self.rank()));
    std::vector<PlannedCall> row;
    for (int i = 0; i < 8; ++i)
      row.push_back(
          call_for(random, self.size(), AlgorithmOverride::relayed, i == 0 ? 3 << 20 : 60000));
    const Stream stream(driver, comm->context());
    const CallRow memory(driver, row, self.rank());
    for (std::size_t i = 0; i < row.size(); ++i) {
      std::this_thread::sleep_for(std::chrono::microseconds(own() % 2000));
      collectives.run(memory.call(row, i), stream.get(), AlgorithmOverride::relayed);
    }
    POLYPATH_CHECK(driver, stream_synchronize(stream.get()));
    comm->check();
    const std::string wrong = memory.difference_of(row);
    require(wrong.empty(), wrong.c_str());
    require(collectives.relayed_copies() > 0, "no copy went over a relay");
    comm->exchange({}, {});
    GraphGame game(*comm, AlgorithmOverride::relayed, options);
    for (int turn = 0; turn < 2; ++turn) {
      const std::string difference = game.turn();
      require(difference.empty(), difference.c_str());
    }
    require(game.collectives().relayed_copies() > 0, "no copy of a graph went over a relay");
    comm->exchange({}, {});
  }
  self.reached("end");
}

class RelayProcesses : public testing::TestWithParam<int> {};

TEST_P(RelayProcesses, RowsAndGraphs) {
  if (gpus_up_to(4) < 4) GTEST_SKIP() << "needs four GPUs";
  ProcessGroup group("relays", GetParam());
  group.pass("end");
  expect_all_well(group, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Ranks, RelayProcesses, testing::Values(2, 3),
                         [](const auto& param_info) { return std::to_string(param_info.param); });

}  // namespace
}  // namespace polypath::test
