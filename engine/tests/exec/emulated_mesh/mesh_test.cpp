#include "mesh_test.hpp"

#include <algorithm>
#include <array>

#include "exec/emulated_mesh/mesh_node.hpp"
#include "exec/kernels/images.hpp"
#include "tune/group_timer.hpp"

namespace polypath::test {

void MeshTest::SetUp() {
  EngineTest::SetUp();
  if (IsSkipped()) return;
  if (source().simulated) GTEST_SKIP() << "the simulated driver runs no kernels";
  if (link_copy_image().empty()) GTEST_SKIP() << "this build has no kernels";
  const auto link = std::ranges::find_if(node().links, is_emulated);
  if (link == node().links.end()) GTEST_SKIP() << "no NVLink between two GPUs";
  from_ = link->from;
  to_ = link->to;
  links_ = std::make_unique<EmulatedLinks>(source().driver, node());
}

void MeshTest::launch(CUdeviceptr dst, CUdeviceptr src, std::uint64_t bytes, const Place& place,
                      CUstream stream) {
  const CurrentContext current(driver(), context_of(place.gpu));
  LaneCopy copy = link_copy(dst, src, bytes, place);
  ASSERT_EQ(copy.launch(driver(), stream), CUDA_SUCCESS);
}

void MeshTest::launch(const Payload& payload, const Place& place, CUstream stream) {
  const Transfer transfer = payload.transfer(stream);
  launch(transfer.dst, transfer.src, transfer.bytes, place, stream);
}

void MeshTest::set_lanes(int lanes) {
  for (std::size_t link = 0; link < links_->links().size(); ++link)
    links_->set_lanes(link, lanes, 0);
}

double MeshTest::one_lane_gbps() {
  set_lanes(1);
  const Payload data = payload({from_, to_, 64 * kMiB});
  const Stream stream = stream_on(from_.index);
  const std::array streams{stream.get()};
  GroupTimer timer(driver(), streams);
  const auto issue = [&] { launch(data, pushed(), stream.get()); };
  timer.run(issue);
  return rate_gbps(64 * kMiB, timer.run(issue));
}

}  // namespace polypath::test
