// The fixture of the tests with the fake engine: memory on two GPUs that reach each other and of
// the host, poisoned or with random contents, and what has been asked of the engine and of the
// driver since then. The simulated node is in virtual time: what is not waited for is not done.
#pragma once

#include <algorithm>

#include "fake_engine.hpp"
#include "fixture.hpp"

namespace polypath::preload::test {

using sim::test::pattern;

/// Above the engine's thresholds.
inline constexpr std::size_t kLarge = 4 * kMiB + 13;

class ShimTest : public sim::test::SimTest {
 protected:
  using Answer = FakeEngine::Answer;

  /// The engine is made once a process, and says then what it splits.
  static void SetUpTestSuite() {
    fake_engine().thresholds = {kMiB, 2 * kMiB, 3 * kMiB, SIZE_MAX, SIZE_MAX};
  }

  void SetUp() override {
    SimTest::SetUp();
    enable_peer(0, 1);
    enable_peer(1, 0);
    near = allocate(0, kLarge);
    far = allocate(1, kLarge);
    host = allocate_host(kLarge);
    renew();
  }

  void TearDown() override {
    EXPECT_CUDA(CUDA_SUCCESS, cuCtxSynchronize());
    use(1);
    EXPECT_CUDA(CUDA_SUCCESS, cuCtxSynchronize());
    use(0);
    engine.answer = Answer::leave;
    engine.cuda_result = 0;
    engine.import_status = POLYPATH_SUCCESS;
    engine.during_copy = [] {};
    engine.during_import = [](const std::string&) {};
    SimTest::TearDown();
  }

  /// Other contents in all memories, and nothing asked.
  void renew() {
    engine.answer = Answer::leave;
    engine.during_copy = [] {};
    for (const auto& [memory, salt] : {std::pair{near, 0}, {far, 80}, {device(host), 160}})
      write(memory, pattern(kLarge, static_cast<std::uint8_t>(++seed + salt)));
    EXPECT_CUDA(CUDA_SUCCESS, cuCtxSynchronize());
    engine.copies.clear();
    engine.noted.clear();
    engine.groups.clear();
    engine.imports.clear();
    engine.imported.clear();
    polypath_sim_reset_counters();
  }

  /// What a memory of this fixture holds now.
  [[nodiscard]] std::vector<std::uint8_t> bytes_at(const void* address, std::size_t bytes) const {
    if (address != host) return peek(device(address), bytes);
    return {host, host + bytes};
  }

  static void* pointer(CUdeviceptr address) { return std::bit_cast<void*>(address); }

  FakeEngine& engine = fake_engine();
  CUdeviceptr near = 0;  ///< on GPU 0, which is current
  CUdeviceptr far = 0;   ///< on GPU 1
  std::uint8_t* host = nullptr;
  int seed = 0;
};

}  // namespace polypath::preload::test
