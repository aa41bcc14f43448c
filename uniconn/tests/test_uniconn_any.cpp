// The suite over the backend that POLYPATH_BACKEND names, in one program with the code of all; NCCL
// and NVSHMEM are what stands in for them. How it chooses: test_uniconn_choice.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "polypath/uniconn/backend/any.hpp"
#include "thread_suite.hpp"

namespace polypath::test {
namespace {

using testing::Each;
using Backend = uc::AnyBackend;
using Parameter = std::tuple<SuiteCase<Backend>, int>;

class UniconnAny : public testing::TestWithParam<Parameter> {};
TEST_P(UniconnAny, Case) {
  const auto& [suite_case, ranks] = GetParam();
  if (gpus() < ranks) GTEST_SKIP() << "needs " << ranks << " GPUs";
  const int requested = uc::detail::library_of(uc::detail::Offer::requested_backend());
  ASSERT_NE(requested, uc::detail::kNoLibrary) << "POLYPATH_BACKEND says which";
  const std::string name = uc::detail::library_names.at(static_cast<std::size_t>(requested));
  EXPECT_THAT(on_ranks<Backend>(ranks,
                                [&](SuiteRank<Backend>& self) {
                                  SUITE_EXPECT(self.env.BackendName() == name,
                                               self.env.BackendName());
                                  suite_case.run(self);
                                }),
              Each(""));
}
INSTANTIATE_TEST_SUITE_P(Any, UniconnAny,
                         testing::Combine(testing::ValuesIn(suite<Backend>()),
                                          testing::Values(2, 4)),
                         [](const auto& test_info) {
                           return std::string(std::get<0>(test_info.param).name) + "On" +
                                  std::to_string(std::get<1>(test_info.param));
                         });

}  // namespace
}  // namespace polypath::test
