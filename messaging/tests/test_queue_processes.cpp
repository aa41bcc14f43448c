// Queues between processes, and what happens when one of them goes.
#include <gmock/gmock.h>
#include <chrono>
#include <nlohmann/json.hpp>

#include "messaging/queue_set.hpp"
#include "process_group.hpp"
#include "queue_rig.hpp"

namespace polypath::test {
namespace {

using testing::HasSubstr;

constexpr unsigned kPushes = 8;

/// The row of one warp, that of `rank`.
RemoteRow row_of(const device::queue_view& view, unsigned pushes, PoppedItem* popped,
                 std::uint32_t room) {
  return {{view, Members::warp, Calls::waiting, 3, 1, pushes, nullptr, 1, popped, room}, false};
}

device::queue_view view_of(const QueueSet& queues, int index, polypath_queue_side side) {
  device::queue_view view{};
  queues.view(index, side, &view, sizeof view);
  return view;
}

/// Every rank pushes to every rank, and pops what came; twice, with a fresh handle.
RANK_PROGRAM(queues_to_all) {
  const auto comm = self.create();
  const polypath_queue_options options = options_of(12, 128, 32);
  TestGpu gpu(comm->gpu());
  for (int time = 0; time < 2; ++time) {
    const auto queues = QueueSet::connected_each(*comm, shape_of(&options));
    const std::uint32_t room = 2 * kPushes * 32;  // for what came twice, too
    PoppedItem* const popped = gpu.alloc_popped(std::size_t{room} * RingsRow::kMaxSources);
    RingsRow rings{};
    rings.count = static_cast<std::uint32_t>(comm->size());
    rings.popped = popped;
    rings.room = room;
    for (int other = 0; other < comm->size(); ++other)
      rings.rings[other] = view_of(*queues, other, POLYPATH_QUEUE_CONSUMER);
    gpu.launch("polypath_test_rings_pops", 1, 32, rings, 1);
    for (int other = 0; other < comm->size(); ++other) {
      const auto pushes = view_of(*queues, other, POLYPATH_QUEUE_PRODUCER);
      gpu.launch("polypath_test_remote_pushes", 1, 32, row_of(pushes, kPushes, nullptr, 0), 0);
      gpu.launch("polypath_test_remote_close", 1, 32, pushes, 0);
    }
    gpu.synchronize();
    comm->check();
    for (int other = 0; other < comm->size(); ++other)
      EXPECT_EQ(
          what_is_wrong(gpu.read(popped + std::size_t{room} * static_cast<unsigned>(other), room),
                        1, kPushes * 32),
          "")
          << "from rank " << other;
    EXPECT_THAT(queues->report().dump(), HasSubstr("\"pushed\":256"));
    queues->release();
  }
}
TEST(QueueProcesses, EachToEach) {
  NEEDS_GPUS(3);
  expect_all_well("queues_to_all", 3);
}

/// Rank 1 should push to rank 0, or pop from it; it never does.
RANK_PROGRAM(one_side_is_killed) {
  const auto comm = self.create();
  const polypath_queue_options options = options_of(12, 128, 32);
  TestGpu gpu(comm->gpu());
  const bool pushes = RankProcess::ends_at("pops");
  const auto queues =
      QueueSet::connected(*comm, shape_of(&options), pushes ? 0 : 1, pushes ? 1 : 0, 1);
  self.at("pops");
  self.at("pushes");
  if (self.rank() == 0 && pushes)
    gpu.launch("polypath_test_remote_pushes", 1, 32,
               row_of(view_of(*queues, 0, POLYPATH_QUEUE_PRODUCER), 50, nullptr, 0), 0);
  if (self.rank() == 0 && !pushes)
    gpu.launch("polypath_test_remote_pops", 1, 32,
               row_of(view_of(*queues, 0, POLYPATH_QUEUE_CONSUMER), 0, gpu.alloc_popped(64), 64),
               0);
  gpu.synchronize();
  while (self.rank() != 0 && !comm->aborted())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  comm->check();
}

class OneSideIsKilled : public testing::TestWithParam<const char*> {};
TEST_P(OneSideIsKilled, AndAllOthersSaySo) {
  NEEDS_GPUS(3);
  const auto results = results_of_kill("one_side_is_killed", 3, GetParam());
  for (const std::size_t rank : {0, 2}) EXPECT_THAT(results[rank], HasSubstr("rank 1")) << rank;
}
INSTANTIATE_TEST_SUITE_P(WhoIsTo, OneSideIsKilled, testing::Values("pushes", "pops"),
                         [](const auto& stage) { return as_name(stage.param); });

}  // namespace
}  // namespace polypath::test
