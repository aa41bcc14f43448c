// What the tests of channels over relays are worth: each defect of mutants.h is found.
#include <gtest/gtest.h>

#include "collectives/kernels/mutants.h"
#include "relay_cases.hpp"

namespace polypath::test {
namespace {

struct RelayMutant {
  Fault fault;
  const char* name;
};
void PrintTo(const RelayMutant& mutant, std::ostream* to) { *to << mutant.name; }

class RelayMutants : public testing::TestWithParam<RelayMutant> {
 protected:
  void TearDown() override { active_mutant<Fault> = Fault::none; }
};

TEST_P(RelayMutants, MakesRowsFail) {
  active_mutant<Fault> = GetParam().fault;
  EXPECT_NE(0, first_wrong_relay_row(40));
}

INSTANTIATE_TEST_SUITE_P(All, RelayMutants,
                         testing::Values(RelayMutant{Fault::relay_slots_shared, "SlotsShared"},
                                         RelayMutant{Fault::relay_slots_of_one, "SlotsOfOne"},
                                         RelayMutant{Fault::direct_over_relay, "DirectOverRelay"},
                                         RelayMutant{Fault::flag_before_data, "FlagBeforeData"},
                                         RelayMutant{Fault::flag_without_fence, "FlagWithoutFence"},
                                         RelayMutant{Fault::no_wait_for_data, "NoWaitForData"},
                                         RelayMutant{Fault::no_wait_for_credit, "NoWaitForCredit"},
                                         RelayMutant{Fault::credit_before_taking,
                                                     "CreditBeforeTaking"},
                                         RelayMutant{Fault::counts_not_kept, "CountsNotKept"}),
                         [](const auto& param_info) { return std::string(param_info.param.name); });

TEST(RelayMutant, WithoutFault_NothingIsFound) { EXPECT_EQ(0, first_wrong_relay_row(40)); }

}  // namespace
}  // namespace polypath::test
