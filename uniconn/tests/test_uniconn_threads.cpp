// The suite on polypath's backend, by ranks that are threads: in virtual time, and on worker
// threads with delays.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "thread_suite.hpp"

namespace polypath::test {
namespace {

using testing::Each;
using Backend = uc::PolypathBackend;
using Parameter = std::tuple<SuiteCase<Backend>, int>;

class UniconnThreads : public testing::TestWithParam<Parameter> {};
TEST_P(UniconnThreads, Case) {
  const auto& [suite_case, ranks] = GetParam();
  if (gpus() < ranks) GTEST_SKIP() << "needs " << ranks << " GPUs";
  EXPECT_THAT(on_ranks<Backend>(ranks, [&](SuiteRank<Backend>& self) { suite_case.run(self); }),
              Each(""));
}
INSTANTIATE_TEST_SUITE_P(Polypath, UniconnThreads,
                         testing::Combine(testing::ValuesIn(suite<Backend>()),
                                          testing::Values(2, 4)),
                         [](const auto& test_info) {
                           return std::string(std::get<0>(test_info.param).name) + "On" +
                                  std::to_string(std::get<1>(test_info.param));
                         });

}  // namespace
}  // namespace polypath::test
