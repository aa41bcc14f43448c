// A copy over an emulated link as a node of a CUDA graph: it takes turns with copies of streams,
// and can be given other addresses.
#include "mesh_test.hpp"
#include "support/driver_extras.hpp"

namespace polypath::test {
namespace {

class LaneGraphTest : public MeshTest {
 protected:
  void SetUp() override {
    MeshTest::SetUp();
    if (IsSkipped()) return;
    if (driver().graph_create == nullptr || driver().graph_add_kernel_node == nullptr ||
        driver().graph_exec_kernel_node_set_params == nullptr)
      GTEST_SKIP() << "the driver has no kernel nodes";
  }
  LaneCopy copy_of(const Payload& payload, const Place& place) {
    const Transfer transfer = payload.transfer(nullptr);
    return link_copy(transfer.dst, transfer.src, transfer.bytes, place);
  }
};

TEST_F(LaneGraphTest, NodesCopyAndAreGivenOtherAddresses) {
  set_lanes(2);
  const Payload there = payload({from_, to_, 8 * kMiB + 3});
  const Payload back_again = payload({to_, from_, 8 * kMiB + 5, 1, 2});
  const Payload later = payload({from_, to_, 5 * kMiB + 1, 3, 3});
  const Stream stream = stream_on(from_.index);
  const CurrentContext current(driver(), context_of(from_.index));

  // One after the other, on different GPUs.
  CUgraph graph = nullptr;
  ASSERT_EQ(driver().graph_create(&graph, 0), CUDA_SUCCESS);
  LaneCopy::Arguments storage{};
  CUgraphNode first = nullptr;
  LaneCopy copy = copy_of(there, pushed());
  CUDA_KERNEL_NODE_PARAMS params = copy.node_params(storage);
  ASSERT_EQ(driver().graph_add_kernel_node(&first, graph, nullptr, 0, &params), CUDA_SUCCESS);
  CUgraphNode second = nullptr;
  copy = copy_of(back_again, back());
  params = copy.node_params(storage);
  ASSERT_EQ(driver().graph_add_kernel_node(&second, graph, &first, 1, &params), CUDA_SUCCESS);
  CUgraphExec executable = nullptr;
  ASSERT_EQ(driver().graph_instantiate(&executable, graph, 0), CUDA_SUCCESS);

  ASSERT_EQ(driver().graph_launch(executable, stream.get()), CUDA_SUCCESS);
  synchronize(stream.get());
  EXPECT_TRUE(there.arrived());
  EXPECT_TRUE(back_again.arrived());
  EXPECT_TRUE(later.untouched());

  copy = copy_of(later, pushed());
  params = copy.node_params(storage);
  ASSERT_EQ(driver().graph_exec_kernel_node_set_params(executable, first, &params), CUDA_SUCCESS);
  ASSERT_EQ(driver().graph_launch(executable, stream.get()), CUDA_SUCCESS);
  synchronize(stream.get());
  EXPECT_TRUE(later.arrived());
  EXPECT_EQ(driver().graph_exec_destroy(executable), CUDA_SUCCESS);
  EXPECT_EQ(driver().graph_destroy(graph), CUDA_SUCCESS);
}

}  // namespace
}  // namespace polypath::test
