// The fixture of tests of the whole engine: on the simulated node that POLYPATH_NODE names, or on
// this machine's GPUs. Skips where there is neither.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "core/context.hpp"
#include "driver/resources.hpp"
#include "support/payload.hpp"
#include "support/traffic.hpp"

namespace polypath::test {

class EngineTest : public testing::Test {
 protected:
  /// Opens the node, once a process, and makes GPU 0's primary context current, as a program has
  /// it.
  void SetUp() override;

  [[nodiscard]] const NodeSource& source() const { return *source_; }
  [[nodiscard]] const Node& node() const { return source_->node; }
  [[nodiscard]] const CudaDriver& driver() const { return *source_->driver; }
  [[nodiscard]] int gpus() const { return static_cast<int>(node().gpus.size()); }
  /// GPU 0's primary context, or another's, held until the test ends.
  CUcontext context_of(int gpu);
  /// A non-blocking stream on `gpu`.
  Stream stream_on(int gpu) { return Stream(driver(), context_of(gpu)); }
  [[nodiscard]] bool context_active(int gpu) const;

  /// The memories that a test can place a buffer in: all GPUs, and the host memories that this
  /// machine really has (a simulated node may have more NUMA domains).
  [[nodiscard]] std::vector<MemoryId> memories() const;
  Payload payload(const Payload::Shape& shape) { return {driver(), node(), shape, random_()}; }
  const Payload& add(std::deque<Payload>& payloads, const Payload::Shape& shape) {
    return payloads.emplace_back(driver(), node(), shape, random_());
  }
  /// The smallest power of two from 1 to 64 MiB that `context` splits; nothing when there is none.
  static std::optional<std::uint64_t> min_split(Context& context, MemoryId src, MemoryId dst);

  /// copy_async, and the thread's current context must be the same afterwards.
  void copy(Context& context, const Transfer& transfer);
  void synchronize(CUstream stream) { POLYPATH_CHECK(driver(), stream_synchronize(stream)); }
  /// Whether all on `stream` completes within a minute.
  testing::AssertionResult completes(CUstream stream);
  [[nodiscard]] bool done(CUstream stream) { return driver().stream_query(stream) == CUDA_SUCCESS; }
  /// Lets some time pass, simulated or real.
  void pass_time() const;

  std::mt19937_64 random_{20240229};

 private:
  const NodeSource* source_ = nullptr;
  std::vector<std::unique_ptr<PrimaryContext>> contexts_;  // by GPU
  std::optional<CurrentContext> current_;
};

}  // namespace polypath::test
