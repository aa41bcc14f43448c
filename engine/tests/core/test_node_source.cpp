// What a context is made on: node files and settings that are wrong say where, and a machine
// without GPUs says what to type.
#include <gmock/gmock.h>

#include "support/in_child.hpp"
#include "support/simulated_test.hpp"
#include "support/temporary_folder.hpp"

namespace polypath::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

template <typename Expected>
std::string message_of(const OptionArguments& arguments) {
  try {
    const Context context(arguments);
  } catch (const Expected& error) {
    return error.what();
  }
  return "was made";
}

TEST(NodeSource, WithoutADriverSaysWhatToType) {
  const std::string message =
      message_of<NoDevice>({{"node", ""}, {"driver_library", "libno_such_driver.so"}});
  EXPECT_THAT(message, AllOf(HasSubstr("no GPU"), HasSubstr("libno_such_driver.so"),
                             HasSubstr("--node narval"), HasSubstr("POLYPATH_NODE=narval")));
  EXPECT_THAT(message, testing::Not(HasSubstr("\n"))) << "one line";
}

TEST(NodeSource, UnknownNodesAreNamedWithTheKnownOnes) {
  EXPECT_THAT(message_of<InvalidArgument>({{"node", "no-such-node"}}),
              AllOf(HasSubstr("no-such-node"), HasSubstr("narval")));
}

TEST(NodeSource, BadNodeFilesAreNamedWithLineAndRange) {
  const TemporaryFolder folder;
  const std::string file =
      folder.write("bad-node.toml",
                   "schema = 1\nname = \"bad\"\ntitle = \"t\"\nsource = \"s\"\n"
                   "[[gpu]]\ncount = 2\nname = \"g\"\nmemory_gib = 1\nnuma = 0\n"
                   "[[host]]\nnuma = 0\nmemory_gib = 1\n"
                   "[[link]]\nfrom = \"gpu*\"\nto = \"gpu*\"\ntype = \"nvlink\"\ngbps = -5\n"
                   "source = \"s\"\n");
  EXPECT_THAT(message_of<InvalidArgument>({{"node", file}}),
              AllOf(HasSubstr(file + ":17:"), HasSubstr("gbps")));
}

TEST(NodeSource, BadSettingsAreNamedWithTheirRange) {
  EXPECT_THAT(message_of<InvalidArgument>({{"staging_size", "1"}}),
              AllOf(HasSubstr("staging_size '1'"), HasSubstr("argument"), HasSubstr("4M to 4G")));
}

/// What a child of this process hears that makes a context: 1, that a change met its fork.
int child_hears() {
  return in_child([] {
    const std::string message = message_of<Error>({{"node", "no-such-node"}});
    return testing::Matches(HasSubstr("forked"))(message)         ? 1
           : testing::Matches(HasSubstr("no-such-node"))(message) ? 2
                                                                  : 3;
  });
}

TEST(NodeSource, ForkAmidChange_ChildIsToldAndParentIsNot) {
  {
    const ContextChange change;
    EXPECT_EQ(child_hears(), 1);
  }
  EXPECT_EQ(child_hears(), 2);
  EXPECT_THAT(message_of<Error>({{"node", "no-such-node"}}), HasSubstr("no-such-node"));
}

class NodeSourceTest : public SimulatedTest {};

TEST_F(NodeSourceTest, OtherNodeInSameProcess_IsRefused) {
  const std::string other = node().name == "beluga" ? "cedar" : "beluga";
  EXPECT_THAT(message_of<InvalidArgument>({{"node", other}}),
              AllOf(HasSubstr(other), HasSubstr("already runs on")));
}

TEST(NodeSource, SimulatedNode_RefusesEmulatedMesh) {
  EXPECT_THAT(message_of<InvalidArgument>({{"node", "narval"}, {"emulate_mesh", "46"}}),
              AllOf(HasSubstr("emulate_mesh"), HasSubstr("--node narval")));
}

TEST_F(NodeSourceTest, OpenedNode_RefusesEmulatedMesh) {
  EXPECT_THROW(Context(source(), {{"emulate_mesh", "46"}}), InvalidArgument);
}

TEST(NodeSource, EmulatedMesh_NeedsPeerAccess) {
  EXPECT_THAT(message_of<InvalidArgument>({{"emulate_mesh", "46"}, {"peer_access", "0"}}),
              HasSubstr("emulate_mesh needs peer access"));
}

TEST_F(NodeSourceTest, WithoutPeerAccess_DriverAndLinksSaySo) {
  if (node().gpus.size() < 2) GTEST_SKIP() << "needs two GPUs";
  const NodeSource alone = open_node(load_options({{"peer_access", "0"}}));
  for (const Link& link : alone.node.links)
    if (link.from.is_gpu() && link.to.is_gpu()) {
      EXPECT_EQ(link.type, LinkType::bounce) << to_string(link.from) << to_string(link.to);
    }
  EXPECT_EQ(alone.node.links.size(), node().links.size());
  const CudaDriver& table = *alone.driver;
  int can = 1;
  EXPECT_EQ(table.device_can_access_peer(&can, 0, 1), CUDA_SUCCESS);
  EXPECT_EQ(can, 0);
  EXPECT_EQ(table.ctx_enable_peer_access(nullptr, 0), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
  CUdeviceptr memory = 0;
  EXPECT_EQ(table.ipc_open_mem_handle(&memory, {}, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
            CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
}

TEST_F(NodeSourceTest, MakesNothingUntilItIsUsed) {
  const LiveObjects before = live_objects(driver());
  const Context context{OptionArguments{}};
  EXPECT_EQ(live_objects(driver()), before);
  EXPECT_EQ(context.source().capacities, Capacities::node_file);
  EXPECT_EQ(context.node(), node());
}

}  // namespace
}  // namespace polypath::test
