// What the tests of results that go straight into the receivers' buffers are worth: each defect of
// mutants.h is found.
#include <gtest/gtest.h>

#include "collectives/kernels/mutants.h"
#include "window_cases.hpp"

namespace polypath::test {
namespace {

struct WindowMutant {
  Fault fault;
  const char* name;
};
void PrintTo(const WindowMutant& mutant, std::ostream* to) { *to << mutant.name; }

class WindowMutants : public testing::TestWithParam<WindowMutant> {
 protected:
  void TearDown() override { active_mutant<Fault> = Fault::none; }
};

TEST_P(WindowMutants, MakesRowsFail) {
  active_mutant<Fault> = GetParam().fault;
  EXPECT_NE(0, first_wrong_window_row(60));
}

INSTANTIATE_TEST_SUITE_P(All, WindowMutants,
                         testing::Values(WindowMutant{Fault::window_not_awaited, "NotAwaited"},
                                         WindowMutant{Fault::window_lap_unchecked, "LapUnchecked"},
                                         WindowMutant{Fault::window_of_own_input, "OfOwnInput"},
                                         WindowMutant{Fault::direct_tile_moved, "DirectTileMoved"},
                                         WindowMutant{Fault::flag_before_data, "FlagBeforeData"},
                                         WindowMutant{Fault::no_wait_for_data, "NoWaitForData"}),
                         [](const auto& param_info) { return std::string(param_info.param.name); });

TEST(WindowMutant, Misaligned_IsFound) {
  CollectiveCase what = window_case(CollectiveOp::allreduce, 3000);
  what.out_shift = 1;
  EXPECT_EQ(0, places_announced(what, 5));
  active_mutant<Fault> = Fault::window_misaligned;
  EXPECT_NE(0, places_announced(what, 5));
  active_mutant<Fault> = Fault::none;
}

/// Only what follows a call on a stream can see that its last tiles are late, and only where the
/// sender takes no tiles, for whose flags it has fences.
TEST(WindowMutant, DirectWithoutFence_IsFound) {
  CollectiveCase what = window_case(CollectiveOp::broadcast, 384);
  what.blocks = 1;
  what.tile_bytes = 512;
  what.stages = 1;
  what.lag = 2;
  bool is_found = false;
  for (std::uint64_t seed = 1; seed <= 1000 && !is_found; ++seed) {
    HostKernelRanks ranks(window_shape());
    EXPECT_EQ("", ranks.run_row({what, what}, seed));
    active_mutant<Fault> = Fault::direct_without_fence;
    is_found = !ranks.run_row({what, what}, seed).empty();
    active_mutant<Fault> = Fault::none;
  }
  EXPECT_TRUE(is_found);
}

TEST(WindowMutant, CallUnchecked_IsFound) {
  int wrong_runs = 0;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    EXPECT_EQ("", run_shorter_on_first(CollectiveOp::all_gather, seed));
    active_mutant<Fault> = Fault::window_call_unchecked;
    wrong_runs += run_shorter_on_first(CollectiveOp::all_gather, seed).empty() ? 0 : 1;
    active_mutant<Fault> = Fault::none;
  }
  EXPECT_GT(wrong_runs, 0);
}

TEST(WindowMutant, NotWithdrawn_IsFound) {
  EXPECT_EQ(0, places_after_timeout(CollectiveOp::allreduce, 1));
  active_mutant<Fault> = Fault::window_not_withdrawn;
  EXPECT_NE(0, places_after_timeout(CollectiveOp::allreduce, 1));
  active_mutant<Fault> = Fault::none;
}

TEST(WindowMutant, WithoutFault_NothingIsFound) { EXPECT_EQ(0, first_wrong_window_row(60)); }

}  // namespace
}  // namespace polypath::test
