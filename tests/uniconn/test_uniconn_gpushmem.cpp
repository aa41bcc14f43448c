// The suite over NVSHMEM's host API, which a small library stands in for, on the simulated driver.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "polypath/uniconn/backend/gpushmem.hpp"
#include "thread_suite.hpp"

namespace polypath::test {
namespace {

using testing::Each;
using Backend = uc::GpushmemBackend;
using Parameter = std::tuple<SuiteCase<Backend>, int>;

class UniconnGpushmem : public testing::TestWithParam<Parameter> {};
TEST_P(UniconnGpushmem, Case) {
  const auto& [its, ranks] = GetParam();
  if (gpus() < ranks) GTEST_SKIP() << "needs " << ranks << " GPUs";
  EXPECT_THAT(on_ranks<Backend>(ranks, [&](SuiteRank<Backend>& self) { its.run(self); }), Each(""));
}
INSTANTIATE_TEST_SUITE_P(Gpushmem, UniconnGpushmem,
                         testing::Combine(testing::ValuesIn(suite<Backend>()),
                                          testing::Values(2, 4)),
                         [](const auto& of) {
                           return std::string(std::get<0>(of.param).name) + "On" +
                                  std::to_string(std::get<1>(of.param));
                         });

}  // namespace
}  // namespace polypath::test
