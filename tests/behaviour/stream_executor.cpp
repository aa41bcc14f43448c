// The behaviour suite on the stream executor.
#include "behaviour_test.hpp"

namespace polypath::test {
namespace {

const ExecutorCase kStream{"stream", [](const NodeSource& source, OptionArguments arguments) {
                             arguments.emplace_back("executor", "stream");
                             return std::make_unique<Context>(source, arguments);
                           }};

constexpr auto kName = [](const auto& executor) { return executor.param.name; };

INSTANTIATE_TEST_SUITE_P(Stream, ContentTest, testing::Values(kStream), kName);
INSTANTIATE_TEST_SUITE_P(Stream, OrderTest, testing::Values(kStream), kName);
INSTANTIATE_TEST_SUITE_P(Stream, PreparationTest, testing::Values(kStream), kName);
INSTANTIATE_TEST_SUITE_P(Stream, ThreadsTest, testing::Values(kStream), kName);
INSTANTIATE_TEST_SUITE_P(Stream, GroupTest, testing::Values(kStream), kName);
INSTANTIATE_TEST_SUITE_P(Stream, HeldStreamTest, testing::Values(kStream), kName);

}  // namespace
}  // namespace polypath::test
