#include "support/engine_test.hpp"

#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <thread>

#include "base/units.hpp"
#include "support/driver_extras.hpp"

namespace polypath::test {
namespace {

constexpr auto kCompletionTimeout = std::chrono::minutes(10);

struct Opened {
  std::optional<NodeSource> source;
  std::string why;
};

const Opened& opened() {
  static const Opened once = [] {
    // Streams share a GPU's hardware queues, 8 by default: one that a test holds back must not hold
    // another because of that. Read when the driver makes a context.
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
    Opened node;
    try {
      node.source = open_node(load_options({}));
    } catch (const NoDevice& error) {
      node.why = error.what();
    }
    return node;
  }();
  return once;
}

}  // namespace

void EngineTest::SetUp() {
  if (!opened().source) GTEST_SKIP() << opened().why;
  source_ = &*opened().source;
  contexts_.resize(node().gpus.size());
  current_.emplace(driver(), context_of(0));
}

CUcontext EngineTest::context_of(int gpu) {
  auto& context = contexts_[static_cast<std::size_t>(gpu)];
  if (context == nullptr) context = std::make_unique<PrimaryContext>(driver(), gpu);
  return context->get();
}

bool EngineTest::context_active(int gpu) const {
  unsigned int flags = 0;
  int active = 0;
  POLYPATH_CHECK(driver(), primary_ctx_get_state(gpu, &flags, &active));
  return active != 0;
}

std::vector<MemoryId> EngineTest::memories() const {
  std::vector<MemoryId> memories;
  for (const MemoryId memory : node().memories()) {
    if (memory.is_host() && memory.index > 0) {
      const TestBuffer probe(driver(), node(), memory, 1);
      const int domain = node().hosts[static_cast<std::size_t>(memory.index)].numa;
      if (numa_domain_of(probe.address()) != domain) continue;
    }
    memories.push_back(memory);
  }
  return memories;
}

std::optional<std::uint64_t> EngineTest::min_split(Context& context, MemoryId src, MemoryId dst) {
  for (std::uint64_t bytes = kMiB; bytes <= 64 * kMiB; bytes *= 2)
    if (!context.plan({{src, dst, bytes}}).native()) return bytes;
  return std::nullopt;
}

void EngineTest::copy(Context& context, const Transfer& transfer) {
  CUcontext before = nullptr;
  CUcontext after = nullptr;
  POLYPATH_CHECK(driver(), ctx_get_current(&before));
  context.copy_async(transfer);
  POLYPATH_CHECK(driver(), ctx_get_current(&after));
  EXPECT_EQ(before, after) << "the caller's current context was changed";
}

testing::AssertionResult EngineTest::completes(CUstream stream) {
  const auto deadline = std::chrono::steady_clock::now() + kCompletionTimeout;
  while (!done(stream)) {
    if (std::chrono::steady_clock::now() > deadline)
      return testing::AssertionFailure() << "the stream has not completed within ten minutes";
    pass_time();
  }
  return testing::AssertionSuccess();
}

void EngineTest::pass_time() const {
  constexpr int kMicroseconds = 50;
  if (source().simulated) {
    driver_function<void(double)>(driver(), "polypath_sim_advance_us")(kMicroseconds);
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(kMicroseconds));
  }
}

}  // namespace polypath::test
