// The behaviour that every executor must show, written once; each suite is instantiated for each of
// them next to its tests. Every test asserts the bytes and how they went.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>

#include "base/units.hpp"
#include "support/engine_test.hpp"

namespace polypath::test {

/// How to make a context that runs one executor.
struct ExecutorCase {
  std::string name;
  std::function<std::unique_ptr<Context>(const NodeSource&, OptionArguments)> make;
};
inline void PrintTo(const ExecutorCase& executor, std::ostream* out) { *out << executor.name; }

/// The case of the executor that the setting of this name chooses.
inline ExecutorCase executor_case(const char* name) {
  return {name, [name](const NodeSource& source, OptionArguments arguments) {
            arguments.emplace_back("executor", name);
            return std::make_unique<Context>(source, arguments);
          }};
}
inline constexpr auto kCaseName = [](const auto& executor) { return executor.param.name; };

class BehaviourTest : public EngineTest, public testing::WithParamInterface<ExecutorCase> {
 protected:
  [[nodiscard]] std::unique_ptr<Context> make_context(const OptionArguments& arguments = {}) const {
    return GetParam().make(source(), arguments);
  }

  /// One transfer on a stream of its own, prepared: it goes as planned, or as the native copy where
  /// there is nothing to plan, and every byte arrives.
  void expect_transfer(Context& context, const Payload::Shape& shape);
};

// A suite a subject, so that each can have a process of its own.
class ContentTest : public BehaviourTest {};
class OrderTest : public BehaviourTest {};
class PreparationTest : public BehaviourTest {};
class ThreadsTest : public BehaviourTest {};

/// Transfers that are planned together.
class GroupTest : public BehaviourTest {
 protected:
  void SetUp() override;
  /// Runs the requests as one group, each on its own stream: every byte arrives, as planned.
  void expect_group(const std::vector<Request>& requests);

  std::unique_ptr<Context> context_;
};

/// Streams that the test holds back. Skips where the driver cannot.
class HeldStreamTest : public BehaviourTest {
 protected:
  void SetUp() override {
    BehaviourTest::SetUp();
    if (IsSkipped()) return;
    if (driver().stream_wait_value32 == nullptr) GTEST_SKIP() << "no cuStreamWaitValue32";
    reach_all_gpus();
    context_ = make_context();
    far_ = gpus() > 1 ? MemoryId::gpu(1) : MemoryId::host(0);
    bytes_ = min_split(*context_, MemoryId::gpu(0), far_).value_or(kMiB) + 5;
  }
  /// As programs that copy between GPUs do: without peer access the driver itself lets one copy
  /// that is held back stop all others between two GPUs (docs/cuda-notes.md).
  void reach_all_gpus();
  [[nodiscard]] Payload::Shape to_far() const { return {MemoryId::gpu(0), far_, bytes_}; }

  std::unique_ptr<Context> context_;
  MemoryId far_;
  std::uint64_t bytes_ = 0;  ///< enough to be split, where anything is
};

}  // namespace polypath::test
