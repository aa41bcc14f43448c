// The back end of NIXL as an agent uses it, through its table of functions, on a simulated node.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include <backend/backend_plugin.h>
#include "driver/cuda_driver.hpp"
#include "support/simulated_test.hpp"
#include "tune/pattern.hpp"

namespace polypath::test {
namespace {

constexpr std::size_t kBlock = 16 * kKiB;
constexpr std::size_t kBlocks = 300;
constexpr std::size_t kBytes = kBlock * kBlocks;
const std::string kAgent = "agent";

class NixlTest : public SimulatedTest {
 protected:
  void SetUp() override {
    SimulatedTest::SetUp();
    if (IsSkipped()) return;
    void* const library = dlopen(POLYPATH_NIXL_PLUGIN, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    const auto init =
        reinterpret_cast<nixlBackendPlugin* (*)()>(dlsym(library, "nixl_plugin_init"));
    ASSERT_NE(init, nullptr);
    plugin_ = init();
    engine_ = make({{"prepare", "wait"}});
    ASSERT_NE(engine_, nullptr);
    order_.resize(kBlocks);
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::ranges::shuffle(order_, std::mt19937_64(1));
  }
  void TearDown() override {
    if (engine_ != nullptr) plugin_->destroy_engine(engine_);
    SimulatedTest::TearDown();
  }

  nixlBackendEngine* make(nixl_b_params_t settings) {
    nixlBackendInitParams parameters;
    parameters.localAgent = kAgent;
    parameters.type = "POLYPATH";
    parameters.customParams = &settings;
    return plugin_->create_engine(&parameters);
  }

  struct Registered {
    nixl_mem_t kind;
    std::uint64_t gpu;
    std::uintptr_t address;
    nixlBackendMD* memory = nullptr;
  };
  Registered registered(nixl_mem_t kind, std::uint64_t gpu, CUdeviceptr address) {
    Registered range{kind, gpu, static_cast<std::uintptr_t>(address)};
    nixlBlobDesc description;
    description.addr = range.address;
    description.len = kBytes;
    description.devId = gpu;
    EXPECT_EQ(engine_->registerMem(description, kind, range.memory), NIXL_SUCCESS);
    nixlBackendMD* target = nullptr;
    EXPECT_EQ(engine_->loadLocalMD(range.memory, target), NIXL_SUCCESS);
    EXPECT_EQ(target, range.memory);
    return range;
  }
  /// Blocks of the range, in this order.
  static nixl_meta_dlist_t list(const Registered& range, const std::vector<std::size_t>& order) {
    nixl_meta_dlist_t blocks(range.kind);
    for (const std::size_t at : order) {
      nixlMetaDesc block;
      block.addr = range.address + at * kBlock;
      block.len = kBlock;
      block.devId = range.gpu;
      block.metadataP = range.memory;
      blocks.add(block);
    }
    return blocks;
  }
  std::vector<std::size_t> in_order() const {
    std::vector<std::size_t> order(kBlocks);
    std::iota(order.begin(), order.end(), std::size_t{0});
    return order;
  }
  /// Posts it `times` times, and waits for each.
  void transfer(nixl_xfer_op_t operation, const nixl_meta_dlist_t& local,
                const nixl_meta_dlist_t& remote, int times = 1) {
    nixlBackendReqH* request = nullptr;
    ASSERT_EQ(engine_->prepXfer(operation, local, remote, kAgent, request), NIXL_SUCCESS);
    EXPECT_EQ(engine_->checkXfer(request), NIXL_ERR_NOT_POSTED);
    for (int i = 0; i < times; ++i) {
      nixl_status_t status = engine_->postXfer(operation, local, remote, kAgent, request);
      while (status == NIXL_IN_PROG) status = engine_->checkXfer(request);
      EXPECT_EQ(status, NIXL_SUCCESS);
    }
    EXPECT_EQ(engine_->releaseReqH(request), NIXL_SUCCESS);
  }

  nixlBackendPlugin* plugin_ = nullptr;
  nixlBackendEngine* engine_ = nullptr;
  std::vector<std::size_t> order_;
};

TEST_F(NixlTest, PluginSaysWhatItIs) {
  EXPECT_EQ(plugin_->api_version, NIXL_PLUGIN_API_VERSION);
  EXPECT_STREQ(plugin_->get_plugin_name(), "POLYPATH");
  EXPECT_EQ(plugin_->get_backend_mems(), (nixl_mem_list_t{DRAM_SEG, VRAM_SEG}));
  EXPECT_TRUE(plugin_->get_backend_options().empty());
  EXPECT_TRUE(engine_->supportsLocal());
  EXPECT_FALSE(engine_->supportsRemote());
  EXPECT_FALSE(engine_->supportsNotif());
}

TEST_F(NixlTest, BlocksArriveInEachDirection) {
  std::vector<std::byte> source(kBytes);
  std::vector<std::byte> target(kBytes, std::byte{0xEE});
  fill_pattern(source, 7);
  TestBuffer first(driver(), node(), MemoryId::gpu(0), kBytes);
  TestBuffer second(driver(), node(), MemoryId::gpu(1), kBytes);
  first.poison();
  second.poison();
  const auto at = [](std::vector<std::byte>& memory) {
    return reinterpret_cast<CUdeviceptr>(memory.data());
  };
  const Registered from = registered(DRAM_SEG, 0, at(source));
  const Registered to = registered(DRAM_SEG, 0, at(target));
  const Registered gpu0 = registered(VRAM_SEG, 0, first.address());
  const Registered gpu1 = registered(VRAM_SEG, 1, second.address());
  // Shuffled on the way, and put in order again at the end.
  transfer(NIXL_WRITE, list(from, in_order()), list(gpu0, order_), 2);
  transfer(NIXL_READ, list(gpu1, in_order()), list(gpu0, in_order()));
  transfer(NIXL_WRITE, list(gpu1, order_), list(to, in_order()));
  EXPECT_EQ(first_difference(target, 7), std::nullopt);
  for (const Registered& range : {from, to, gpu0, gpu1}) {
    EXPECT_EQ(engine_->unloadMD(range.memory), NIXL_SUCCESS);
    EXPECT_EQ(engine_->deregisterMem(range.memory), NIXL_SUCCESS);
  }
}

TEST_F(NixlTest, UnusableRequests_AreRefused) {
  TestBuffer buffer(driver(), node(), MemoryId::gpu(0), kBytes);
  const Registered gpu = registered(VRAM_SEG, 0, buffer.address());
  nixlBackendMD* memory = nullptr;
  EXPECT_EQ(engine_->registerMem({}, FILE_SEG, memory), NIXL_ERR_NOT_SUPPORTED);
  nixlBackendReqH* request = nullptr;
  const auto all = list(gpu, in_order());
  EXPECT_EQ(engine_->prepXfer(NIXL_READ, all, all, "another", request), NIXL_ERR_NOT_SUPPORTED);
  nixl_opt_b_args_t with_message;
  with_message.hasNotif = true;
  EXPECT_EQ(engine_->prepXfer(NIXL_READ, all, all, kAgent, request, &with_message),
            NIXL_ERR_NOT_SUPPORTED);
  EXPECT_EQ(engine_->prepXfer(NIXL_READ, all, list(gpu, {0}), kAgent, request),
            NIXL_ERR_INVALID_PARAM);
  EXPECT_EQ(request, nullptr);
  // The blocks overlap: polypath refuses them when they are posted.
  ASSERT_EQ(engine_->prepXfer(NIXL_READ, all, all, kAgent, request), NIXL_SUCCESS);
  EXPECT_EQ(engine_->postXfer(NIXL_READ, all, all, kAgent, request), NIXL_ERR_BACKEND);
  EXPECT_EQ(engine_->releaseReqH(request), NIXL_SUCCESS);
  EXPECT_EQ(engine_->deregisterMem(gpu.memory), NIXL_SUCCESS);
  EXPECT_EQ(make({{"no_such_setting", "1"}}), nullptr);
}

}  // namespace
}  // namespace polypath::test
