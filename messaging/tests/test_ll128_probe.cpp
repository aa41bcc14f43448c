// The proof that lines come whole, among ranks of this process: no rank waits for one that cannot
// do its part.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/log.hpp"
#include "comm/ll128_probe.hpp"
#include "driver/fault_injection.hpp"
#include "group.hpp"
#include "support/driver_extras.hpp"

namespace polypath::test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

struct Fault {
  const char* call;
  std::uint64_t times;  ///< of all ranks, until the last kernel is launched
};
void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.call; }

class LineProof : public testing::TestWithParam<Fault> {};

/// Each call of one function fails in turn, on any rank.
TEST_P(LineProof, FailureOfOneRank_IsReportedOnAll) {
  if (!group_node().simulated) GTEST_SKIP() << "on simulated nodes only";
  set_log_level(LogLevel::off);
  FaultInjector injector(group_node().driver);
  Group group(2, {.time_limit = std::chrono::minutes(2), .driver = injector.driver()});
  const LiveObjects before = live_objects(*group_node().driver);
  for (std::uint64_t n = 1; n <= GetParam().times; ++n) {
    SCOPED_TRACE(n);
    injector.clear();
    injector.fail(GetParam().call, n, CUDA_ERROR_OUT_OF_MEMORY);
    const std::vector<std::string> failures = group.failures(
        [](Communicator& comm) { probe_ll128(comm, {{0, 1}}, ProbeCall::together); });
    EXPECT_EQ(injector.last_failed(), GetParam().call);
    EXPECT_THAT(failures, Each(AllOf(HasSubstr("failed on rank"), HasSubstr("out of memory"))));
    EXPECT_EQ(failures[0], failures[1]);
    // The communicator stays usable, and nothing is left.
    ASSERT_FALSE(group[0].aborted());
    group.run([](Communicator& comm) { comm.exchange({}, {}); });
    EXPECT_EQ(live_objects(*group_node().driver), before);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Calls, LineProof,
    // Kernels are loaded once a context, by the first communicator that needs them.
    testing::Values(Fault{"cuModuleLoadData", 1}, Fault{"cuModuleGetFunction", 4},
                    Fault{"cuStreamCreate", 4}, Fault{"cuMemAlloc_v2", 2},
                    Fault{"cuLaunchKernel", 2}),
    [](const auto& test_info) { return std::string(test_info.param.call); });

}  // namespace
}  // namespace polypath::test
