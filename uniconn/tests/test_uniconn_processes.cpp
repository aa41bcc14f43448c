// The suite on polypath's backend, by ranks that are processes and meet by an exchange of the
// caller's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "process_group.hpp"
#include "suite.hpp"

namespace polypath::test {
namespace {

using Backend = uc::PolypathBackend;

int call(const void* own, void* all, std::size_t bytes, void* user) {
  const auto& exchange = *static_cast<const CommunicatorOptions*>(user);
  try {
    exchange.exchange(
        {static_cast<const std::byte*>(own), bytes},
        {static_cast<std::byte*>(all), bytes * static_cast<std::size_t>(exchange.size)});
    return 0;
  } catch (const std::exception&) {
    return 1;
  }
}

RANK_PROGRAM(suite_of_uniconn) {
  CommunicatorOptions options = self.options();
  uc::Environment<Backend> env(uc::Bootstrap(self.rank(), self.size(), &call, &options));
  env.SetDevice(env.NodeRank());
  const Gpu gpu;
  uc::Communicator<Backend> comm;
  SuiteRank<Backend> rank{env, comm, gpu};
  for (const auto& suite_case : suite<Backend>())
    // Their kernels take turns on the simulated node: the collectives' own tests run them.
    if (const std::string name = suite_case.name; name != "LongReductions" && name != "AlltoAlls")
      suite_case.run(rank);
}
TEST(UniconnProcesses, Suite) {
  NEEDS_GPUS(3);
  ProcessGroup group("suite_of_uniconn", 3);
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ("", group.result(rank));
}

/// Its process ends while another waits for what it would post.
RANK_PROGRAM(one_of_uniconn_exits) {
  CommunicatorOptions options = self.options();
  uc::Environment<Backend> env(uc::Bootstrap(self.rank(), self.size(), &call, &options));
  env.SetDevice(self.rank());
  const Gpu gpu;
  uc::Communicator<Backend> comm;
  auto* const word = uc::Memory<Backend>::Alloc<std::uint64_t>(1);
  if (self.rank() == 1) ::_exit(0);
  uc::Coordinator<Backend> coordinator(gpu.stream);
  coordinator.Acknowledge(word, 0, word, 1, 1, &comm);
  coordinator.WaitComm();
}
TEST(UniconnProcesses, RankExits_EndsWaitsOfOthers) {
  NEEDS_GPUS(2);
  ProcessGroup group("one_of_uniconn_exits", 2);
  EXPECT_THAT(group.result(0), testing::HasSubstr("has ended"));
}

}  // namespace
}  // namespace polypath::test
