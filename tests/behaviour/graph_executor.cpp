// The behaviour suite on the graph executor.
#include "behaviour_test.hpp"

namespace polypath::test {
namespace {

const ExecutorCase kGraph{"graph", [](const NodeSource& source, OptionArguments arguments) {
                            arguments.emplace_back("executor", "graph");
                            return std::make_unique<Context>(source, arguments);
                          }};

constexpr auto kName = [](const auto& executor) { return executor.param.name; };

// A program of this folder has some of the suites, and the executors of all.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ContentTest);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(OrderTest);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(HeldStreamTest);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(PreparationTest);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ThreadsTest);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GroupTest);

INSTANTIATE_TEST_SUITE_P(Graph, ContentTest, testing::Values(kGraph), kName);
INSTANTIATE_TEST_SUITE_P(Graph, OrderTest, testing::Values(kGraph), kName);
INSTANTIATE_TEST_SUITE_P(Graph, PreparationTest, testing::Values(kGraph), kName);
INSTANTIATE_TEST_SUITE_P(Graph, ThreadsTest, testing::Values(kGraph), kName);
INSTANTIATE_TEST_SUITE_P(Graph, GroupTest, testing::Values(kGraph), kName);
INSTANTIATE_TEST_SUITE_P(Graph, HeldStreamTest, testing::Values(kGraph), kName);

}  // namespace
}  // namespace polypath::test
