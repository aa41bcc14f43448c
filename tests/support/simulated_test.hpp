// The fixture of tests that need to know all about the driver: on simulated nodes only.
#pragma once

#include "base/log.hpp"
#include "base/units.hpp"
#include "support/driver_extras.hpp"
#include "support/engine_test.hpp"

namespace polypath::test {

/// What one transfer copies: enough for several routes, where there are several.
inline constexpr std::uint64_t kSplitBytes = 32 * kMiB;

class SimulatedTest : public EngineTest {
 protected:
  void SetUp() override {
    EngineTest::SetUp();
    if (IsSkipped()) return;
    if (!source().simulated) GTEST_SKIP() << "on simulated nodes only";
    // Failures are provoked here; their warnings would hide others.
    set_log_level(LogLevel::off);
  }
  void TearDown() override { set_log_level(LogLevel::warn); }

  [[nodiscard]] MemoryId far() const { return gpus() > 1 ? MemoryId::gpu(1) : MemoryId::host(0); }
};

}  // namespace polypath::test
