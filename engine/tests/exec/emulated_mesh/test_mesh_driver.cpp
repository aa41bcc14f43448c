// The driver of an emulated mesh: which copies go over its links, and that whole transfers of every
// executor do so. On a simulated node, with a host build of the lane kernel.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <set>

#include "core/json.hpp"
#include "exec/emulated_mesh/mesh_driver.hpp"
#include "exec/emulated_mesh/mesh_node.hpp"
#include "exec/kernels/images.hpp"
#include "host_kernel.hpp"
#include "support/simulated_test.hpp"

namespace polypath::test {
namespace {

constexpr std::uint64_t kBytes = 3 * kMiB + 17;
constexpr double kGbps = 46;

class MeshDriverTest : public SimulatedTest {
 protected:
  void SetUp() override {
    SimulatedTest::SetUp();
    if (IsSkipped()) return;
    if (link_copy_image().empty()) GTEST_SKIP() << "this build has no kernels";
    if (gpus() < 3) GTEST_SKIP() << "needs three GPUs";
    if (!host_kernels_) host_kernels_.emplace(source().driver);
    if (mesh_ == nullptr)
      mesh_ = mesh_driver(host_kernels_->driver(), emulated_mesh(node(), kGbps), links_);
    host_kernels_->clear();
  }
  void TearDown() override {
    context_.reset();
    SimulatedTest::TearDown();
  }
  static void TearDownTestSuite() {
    mesh_.reset();
    host_kernels_.reset();
  }

  /// A context that takes the node for one of GPUs.
  std::unique_ptr<Context> new_context(double gbps, OptionArguments arguments = {}) {
    NodeSource here = source();
    here.driver = host_kernels_->driver();
    here.simulated = false;
    arguments.emplace_back("emulate_mesh", fmt::format("{}", gbps));
    return std::make_unique<Context>(std::move(here), arguments);
  }
  void make_context(OptionArguments arguments = {}) {
    context_ = new_context(kGbps, std::move(arguments));
    host_kernels_->clear();
  }
  /// By the mesh's driver; waits.
  void copy_by_mesh(const Payload& payload, CUstream stream) {
    const Transfer transfer = payload.transfer(stream);
    ASSERT_EQ(mesh_->memcpy_async(transfer.dst, transfer.src, transfer.bytes, stream),
              CUDA_SUCCESS);
    synchronize(stream);
    EXPECT_TRUE(payload.arrived());
  }
  /// The one launch since the start; and no copy of the driver.
  HostKernelDriver::Launch only_launch() {
    EXPECT_EQ(host_kernels_->calls().launches.size(), 1u);
    EXPECT_EQ(host_kernels_->calls().copies, 0);
    return host_kernels_->calls().launches.empty() ? HostKernelDriver::Launch{}
                                                   : host_kernels_->calls().launches[0];
  }
  /// The lanes of a link, as a copy over it names them.
  CUdeviceptr queues(int from, int to) {
    const Payload data = payload({MemoryId::gpu(from), MemoryId::gpu(to), kBytes});
    const Stream stream = stream_on(from);
    host_kernels_->clear();
    copy_by_mesh(data, stream.get());
    const CUdeviceptr queues = only_launch().queues;
    host_kernels_->clear();
    return queues;
  }

  // One mesh for all tests: measuring it moves gigabytes.
  inline static std::optional<HostKernelDriver> host_kernels_;
  inline static std::shared_ptr<const CudaDriver> mesh_;
  inline static std::vector<EmulatedLink> links_;
  std::unique_ptr<Context> context_;
};

TEST_F(MeshDriverTest, CopyBetweenGpus_IsKernelOfStreamsGpu) {
  // GPU 0's context is current throughout: a copy's stream may be any GPU's.
  for (const auto& [from, to, gpu] : {std::tuple{0, 1, 0}, {0, 1, 1}, {2, 1, 2}, {1, 2, 0}}) {
    SCOPED_TRACE(fmt::format("gpu{} to gpu{} by gpu{}", from, to, gpu));
    const Payload data = payload({MemoryId::gpu(from), MemoryId::gpu(to), kBytes, 3, 5});
    const Stream stream = stream_on(gpu);
    host_kernels_->clear();
    copy_by_mesh(data, stream.get());
    const HostKernelDriver::Launch launch = only_launch();
    EXPECT_EQ(launch.context, context_of(gpu));
    EXPECT_EQ(launch.bytes, kBytes);
    EXPECT_EQ(launch.blocks, 1u) << "the host build's lane is as fast as the node's link";
    CUcontext current = nullptr;
    ASSERT_EQ(driver().ctx_get_current(&current), CUDA_SUCCESS);
    EXPECT_EQ(current, context_of(0));
  }
}

TEST_F(MeshDriverTest, EachDirectionOfEachPairHasItsLanes) {
  std::set<CUdeviceptr> all;
  for (int from = 0; from < gpus(); ++from)
    for (int to = 0; to < gpus(); ++to)
      if (from != to) all.insert(queues(from, to));
  EXPECT_EQ(all.size(), links_.size());
  EXPECT_EQ(links_.size(), static_cast<std::size_t>(gpus() * (gpus() - 1)));
}

TEST_F(MeshDriverTest, OtherCopiesAreTheDrivers) {
  const MemoryId gpu = MemoryId::gpu(0);
  const MemoryId host = MemoryId::host(0);
  int copies = 0;
  for (const auto& [src, dst] : {std::pair{gpu, host}, {host, gpu}, {gpu, gpu}}) {
    const Payload data = payload({src, dst, kBytes});
    const Stream stream = stream_on(0);
    copy_by_mesh(data, stream.get());
    EXPECT_EQ(host_kernels_->calls().copies, ++copies);
  }
  EXPECT_TRUE(host_kernels_->calls().launches.empty());
}

TEST_F(MeshDriverTest, MemoryOfPoolsIsTheDrivers) {
  if (driver().mem_alloc_async == nullptr) GTEST_SKIP() << "no pools";
  const Payload there = payload({MemoryId::gpu(1), MemoryId::gpu(0), kBytes});
  const Stream stream = stream_on(0);
  CUdeviceptr pool = 0;
  if (driver().mem_alloc_async(&pool, kBytes, stream.get()) != CUDA_SUCCESS)
    GTEST_SKIP() << "the simulated driver has no pools";
  const Transfer transfer = there.transfer(stream.get());
  ASSERT_EQ(mesh_->memcpy_async(pool, transfer.src, kBytes, stream.get()), CUDA_SUCCESS);
  ASSERT_EQ(mesh_->memcpy_async(transfer.dst, pool, kBytes, stream.get()), CUDA_SUCCESS);
  ASSERT_EQ(driver().mem_free_async(pool, stream.get()), CUDA_SUCCESS);
  synchronize(stream.get());
  EXPECT_TRUE(there.arrived());
  EXPECT_EQ(host_kernels_->calls().copies, 2);
  EXPECT_TRUE(host_kernels_->calls().launches.empty());
}

TEST_F(MeshDriverTest, ImportedMemory_UsesLinkOfItsGpu) {
  const CUdeviceptr expected = queues(2, 1);
  // Its own process's, but the driver of a real import says no more than that.
  const Payload data = payload({MemoryId::gpu(0), MemoryId::gpu(1), kBytes, 0, 3});
  const Stream stream = stream_on(0);
  const CUdeviceptr start = data.transfer(nullptr).src;
  mesh_->memory_imported(start, kBytes, 2, context_of(0));
  copy_by_mesh(data, stream.get());
  EXPECT_EQ(only_launch().queues, expected);

  // Opened in another context: kernels of this one do not reach it.
  host_kernels_->clear();
  mesh_->memory_imported(start, kBytes, 2, context_of(1));
  copy_by_mesh(data, stream.get());
  EXPECT_EQ(host_kernels_->calls().copies, 1);
  EXPECT_TRUE(host_kernels_->calls().launches.empty());

  // The GPU of the memory is unknown.
  host_kernels_->clear();
  mesh_->memory_imported(start, kBytes, -1, context_of(0));
  copy_by_mesh(data, stream.get());
  EXPECT_EQ(host_kernels_->calls().copies, 1);
  EXPECT_TRUE(host_kernels_->calls().launches.empty());
}

TEST_F(MeshDriverTest, ReusedAddress_IsNotStaleImport) {
  const CUdeviceptr expected = queues(0, 1);
  const MemoryId gpu = MemoryId::gpu(0);
  const Payload first = payload({gpu, MemoryId::gpu(1), kBytes});
  const Payload second = payload({gpu, MemoryId::gpu(1), kBytes});
  const auto start = [](const Payload* transfer) { return transfer->transfer(nullptr).src; };
  const bool in_order = start(&first) < start(&second);
  const Payload* const low = in_order ? &first : &second;
  const Payload* const high = in_order ? &second : &first;
  // The import reached as far as what is another allocation now.
  mesh_->memory_imported(start(low), start(high) + kBytes - start(low), 2, context_of(0));
  const Stream stream = stream_on(0);
  copy_by_mesh(*high, stream.get());
  EXPECT_EQ(only_launch().queues, expected);
}

TEST_F(MeshDriverTest, ThereIsOneMeshAProcess) {
  EXPECT_THROW(new_context(kGbps / 2), InvalidArgument);
  const auto same = new_context(kGbps);
  EXPECT_TRUE(host_kernels_->calls().launches.empty()) << "it is measured once";
  EXPECT_EQ(same->source().driver, mesh_);
}

TEST_F(MeshDriverTest, AnotherMeshFollowsTheLast) {
  mesh_.reset();
  const auto later = new_context(kGbps / 2);
  EXPECT_EQ(later->source().emulated_links.front().gbps, kGbps / 2);
  EXPECT_FALSE(host_kernels_->calls().launches.empty());
}

TEST_F(MeshDriverTest, EveryPairGoesAsPlannedOverTheLinks) {
  for (const char* executor : {"stream", "graph"}) {
    make_context({{"executor", executor}});
    for (const MemoryId src : memories())
      for (const MemoryId dst : memories())
        for (const std::uint64_t bytes : {100 * kKiB + 1, 32 * kMiB + 7}) {
          if (src == dst || (src.is_host() && dst.is_host())) continue;
          SCOPED_TRACE(fmt::format("{} to {}, {} bytes, {}", to_string(src), to_string(dst), bytes,
                                   executor));
          const Payload data = payload({src, dst, bytes, 1, 2});
          const Plan plan = context_->plan({data.request()});
          context_->prepare({data.request()});
          const Stream stream = stream_on(src.is_gpu() ? src.index : dst.index);
          const Traffic traffic(*context_);
          host_kernels_->clear();
          copy(*context_, data.transfer(stream.get()));
          synchronize(stream.get());
          EXPECT_TRUE(data.arrived());
          const bool native = bytes < 256 * kKiB || plan.native();
          if (native) {
            EXPECT_EQ(traffic.native(), 1u);
          } else {
            EXPECT_TRUE(traffic.went_as(plan));
          }
          // Each copy between two GPUs is a kernel, each other one the driver's.
          std::size_t kernels = 0;
          int copies = 0;
          const auto count = [&](const Link& link, int chunks) {
            if (is_emulated(link))
              kernels += static_cast<std::size_t>(chunks);
            else
              copies += chunks;
          };
          if (native) {
            count(node().links[static_cast<std::size_t>(node().find_link(src, dst).value())], 1);
          } else {
            for (const RouteShare& share : plan.transfers[0].routes)
              for (const int leg : share.route.legs)
                count(node().links[static_cast<std::size_t>(leg)], share.chunks);
          }
          const HostKernelDriver::Calls& calls = host_kernels_->calls();
          EXPECT_EQ(calls.launches.size() + calls.nodes.size(), kernels);
          EXPECT_EQ(calls.copies + calls.copy_nodes, copies);
          EXPECT_EQ(calls.nodes.size() + static_cast<std::size_t>(calls.copy_nodes) > 0,
                    !native && context_->graph_counts().builds > 0 &&
                        std::string_view(executor) == "graph");
        }
    context_.reset();
  }
}

TEST_F(MeshDriverTest, GraphIsPatchedWithOtherAddresses) {
  make_context({{"executor", "graph"}, {"graph_cache_size", "1"}});
  const Payload first = payload({MemoryId::gpu(0), MemoryId::gpu(1), 32 * kMiB + 7});
  const Payload second = payload({MemoryId::gpu(0), MemoryId::gpu(1), 32 * kMiB + 7});
  context_->prepare({first.request()});
  const Stream stream = stream_on(0);
  for (const Payload* const data : {&first, &second}) {
    copy(*context_, data->transfer(stream.get()));
    synchronize(stream.get());
    EXPECT_TRUE(data->arrived());
  }
  EXPECT_EQ(context_->graph_counts().patches, 1u);
}

TEST_F(MeshDriverTest, NativeCopiesOfAProgramGoOverTheLinksToo) {
  make_context();
  const Payload data = payload({MemoryId::gpu(0), MemoryId::gpu(1), 4 * kKiB});
  const Stream stream = stream_on(0);
  EXPECT_EQ(context_->smallest_split().gpu_to_gpu, 0u) << "the shim hands over every copy";
  EXPECT_TRUE(context_->try_copy_async(data.transfer(stream.get())));
  synchronize(stream.get());
  EXPECT_TRUE(data.arrived());
  EXPECT_EQ(only_launch().bytes, 4 * kKiB);
}

TEST_F(MeshDriverTest, NativeCopiesOfAGroupGoOverTheLinksToo) {
  make_context();
  const Payload small = payload({MemoryId::gpu(0), MemoryId::gpu(1), 4 * kKiB});
  const Payload other = payload({MemoryId::gpu(1), MemoryId::gpu(2), 4 * kKiB});
  const Stream first = stream_on(0);
  const Stream second = stream_on(1);
  const std::array group{small.transfer(first.get()), other.transfer(second.get())};
  std::array issued{0, 0};
  context_->try_group_copy_async(group, issued);
  synchronize(first.get());
  synchronize(second.get());
  EXPECT_THAT(issued, testing::ElementsAre(1, 1));
  EXPECT_TRUE(small.arrived());
  EXPECT_TRUE(other.arrived());
  EXPECT_EQ(host_kernels_->calls().launches.size(), 2u);
  EXPECT_EQ(host_kernels_->calls().copies, 0);
}

TEST_F(MeshDriverTest, EnginePassesImportsToTheMesh) {
  make_context();
  const Payload data = payload({MemoryId::gpu(0), MemoryId::gpu(1), 4 * kKiB});
  const Stream stream = stream_on(0);
  const Transfer transfer = data.transfer(stream.get());
  context_->memory_imported(CUipcMemHandle{}, transfer.src, 1);
  context_->copy_async(transfer);
  synchronize(stream.get());
  EXPECT_TRUE(data.arrived());
  EXPECT_EQ(host_kernels_->calls().copies, 1) << "from GPU 1 to GPU 1";
  EXPECT_TRUE(host_kernels_->calls().launches.empty());
}

TEST_F(MeshDriverTest, OutputsAreMarked) {
  make_context();
  const nlohmann::json topology = topology_json(*context_);
  EXPECT_THAT(topology["name"], testing::HasSubstr("(emulated mesh, "));
  EXPECT_EQ(topology["emulated_mesh"]["links"].size(),
            static_cast<std::size_t>(gpus() * (gpus() - 1)));
  EXPECT_EQ(topology["emulated_mesh"]["gbps"], kGbps);
  EXPECT_NE(topology["fingerprint"], source().fingerprint);
  EXPECT_TRUE(context_->source().profile_file.empty());
  EXPECT_THROW(context_->measure({}), InvalidArgument);
}

}  // namespace
}  // namespace polypath::test
