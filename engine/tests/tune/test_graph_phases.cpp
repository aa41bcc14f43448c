// The phases of a graph: on a simulated node they cost what the node says, to the nanosecond; bytes
// are checked; a failed call is an error that names it, and leaves no object.
#include "lab/graph_phases.hpp"

#include <gmock/gmock.h>

#include <deque>
#include <functional>
#include <string>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/units.hpp"
#include "driver/fault_injection.hpp"
#include "driver/resources.hpp"
#include "node_fixture.hpp"
#include "support/driver_extras.hpp"

namespace polypath {
namespace {

constexpr double kNanosecond = 1e-3;

class GraphPhasesTest : public test::NodeTest {
 protected:
  void SetUp() override {
    NodeTest::SetUp();
    if (IsSkipped()) return;
    if (simulated_) clock_ = test::driver_function<double()>(*driver_, "polypath_sim_clock_us");
    if (discovered_.gpus.size() < 2) GTEST_SKIP() << "one GPU: nothing is staged";
  }
  void TearDown() override {
    set_log_level(LogLevel::warn);
    if (IsSkipped() || !simulated_) return;
    // In the whole process no graph was destroyed or changed during a launch.
    EXPECT_EQ(test::driver_function<std::uint64_t()>(*driver_,
                                                     "polypath_sim_graphs_modified_in_flight")(),
              0u);
  }

  [[nodiscard]] static GraphPhasesRequest request(int nodes, std::uint64_t bytes = kMiB) {
    return {MemoryId::gpu(0), MemoryId::gpu(1), bytes, nodes, 2};
  }
  GraphPhases measure(const GraphPhasesRequest& request) { return measure(request, driver_); }
  GraphPhases measure(const GraphPhasesRequest& request,
                      const std::shared_ptr<const CudaDriver>& driver) {
    Devices devices(driver, nullptr, discovered_);
    return measure_graph_phases(*driver, discovered_, devices, request, clock_);
  }
  /// The driver, with `change` made to its table.
  std::shared_ptr<const CudaDriver> changed(const std::function<void(CudaDriver&)>& change) {
    auto driver = std::make_shared<CudaDriver>(*driver_);
    change(*driver);
    return driver;
  }
  /// Measures on a driver that loses bytes; what that is told by.
  std::string complaint(const std::function<void(CudaDriver&)>& change) {
    real_ = driver_.get();
    try {
      measure(request(4), changed(change));
    } catch (const DriverError& error) {
      return std::string("not of the bytes: ") + error.what();
    } catch (const Error& error) {
      return error.what();
    }
    return "none";
  }

  ClockFunction clock_ = steady_clock_us;
  static inline const CudaDriver* real_ = nullptr;  ///< for functions of a changed table
};

TEST_F(GraphPhasesTest, PhasesCostWhatTheNodeSays) {
  if (!simulated_) GTEST_SKIP() << "in virtual time only";
  const Costs& costs = file_.costs;
  for (const int nodes : {2, 8, 64}) {
    SCOPED_TRACE(nodes);
    const GraphPhases phases = measure(request(nodes));
    EXPECT_NEAR(phases.create_us, costs.graph_create_us, kNanosecond);
    EXPECT_NEAR(phases.construct_us, nodes * costs.graph_add_node_us, kNanosecond);
    EXPECT_NEAR(phases.instantiate_us,
                costs.graph_instantiate_us + nodes * costs.graph_instantiate_node_us, kNanosecond);
    const double launch_us = costs.graph_launch_us + nodes * costs.graph_launch_node_us;
    EXPECT_NEAR(phases.first_launch_us, launch_us, kNanosecond);
    EXPECT_NEAR(phases.launch_us, launch_us, kNanosecond);
    EXPECT_NEAR(phases.patch_us, nodes * costs.graph_set_node_us, kNanosecond);
    // An event and a wait for it a chunk, and one of each at the end.
    EXPECT_NEAR(phases.stream_issue_us, nodes * costs.copy_issue_us + (nodes + 2) * costs.call_us,
                kNanosecond);
  }
}

TEST_F(GraphPhasesTest, LatenciesHoldTheirPhases) {
  const GraphPhases phases = measure(request(8));
  const double made_us = phases.create_us + phases.construct_us + phases.instantiate_us;
  EXPECT_GT(phases.first_latency_us, made_us + phases.first_launch_us);
  EXPECT_GT(phases.latency_us, phases.launch_us);
  EXPECT_GT(phases.patched_latency_us, phases.patch_us);
  EXPECT_GT(phases.stream_latency_us, phases.stream_issue_us);
  if (!simulated_) return;
  EXPECT_NEAR(phases.first_latency_us, made_us + phases.latency_us, kNanosecond);
  EXPECT_NEAR(phases.patched_latency_us, phases.patch_us + phases.latency_us, kNanosecond);
}

/// Chunks flow over both legs at once: many arrive before one large one would.
TEST_F(GraphPhasesTest, ChunksAreAPipeline) {
  const GraphPhases two_chunks = measure(request(2, 16 * kMiB));
  const GraphPhases many = measure(request(8, 16 * kMiB));
  EXPECT_LT(many.latency_us - many.launch_us, 0.9 * (two_chunks.latency_us - two_chunks.launch_us));
  if (!simulated_) return;
  EXPECT_NEAR(many.latency_us, many.stream_latency_us, 0.1 * many.latency_us);
}

TEST_F(GraphPhasesTest, StagesOnReachableGpuElseInHost) {
  const bool peers = discovered_.find_link(MemoryId::gpu(0), MemoryId::gpu(1)) &&
                     discovered_
                             .links[static_cast<std::size_t>(
                                 *discovered_.find_link(MemoryId::gpu(0), MemoryId::gpu(1)))]
                             .type != LinkType::bounce;
  const MemoryId via = measure(request(2, 4 * kKiB)).via;
  if (discovered_.gpus.size() < 3 || !peers) {
    EXPECT_TRUE(via.is_host());
    return;
  }
  EXPECT_TRUE(via.is_gpu());
  for (const auto& [src, dst] : {std::pair{MemoryId::host(0), MemoryId::gpu(1)},
                                 std::pair{MemoryId::gpu(0), MemoryId::host(0)}})
    EXPECT_TRUE(measure({src, dst, 4 * kKiB + 1, 4, 1}).via.is_gpu());
}

TEST_F(GraphPhasesTest, EveryByteGoesByTheStagingMemory) {
  if (!simulated_) GTEST_SKIP() << "a simulated node counts bytes";
  const auto moved = [&](MemoryId from, MemoryId to) {
    return test::driver_function<std::uint64_t(const char*, const char*)>(
        *driver_, "polypath_sim_link_bytes")(to_string(from).c_str(), to_string(to).c_str());
  };
  const GraphPhasesRequest phases_request = request(6, kMiB + 5);
  const MemoryId via = measure(phases_request).via;
  if (via.is_host()) GTEST_SKIP() << "buffers are filled over the same links";
  const std::uint64_t first = moved(phases_request.src, via);
  const std::uint64_t second = moved(via, phases_request.dst);
  const std::uint64_t direct = moved(phases_request.src, phases_request.dst);
  measure(phases_request);
  // The graph that is tried runs twice, each timed one five times, the streams once and once for
  // each.
  const std::uint64_t runs = 2 + 5 * 2 + 1 + 2;
  EXPECT_EQ(moved(phases_request.src, via) - first, runs * phases_request.bytes);
  EXPECT_EQ(moved(via, phases_request.dst) - second, runs * phases_request.bytes);
  EXPECT_EQ(moved(phases_request.src, phases_request.dst), direct);
}

TEST_F(GraphPhasesTest, LostBytesAreFound) {
  EXPECT_THAT(complaint([](CudaDriver& driver) {
                driver.graph_add_memcpy_node = [](CUgraphNode* node, CUgraph graph,
                                                  const CUgraphNode* after, std::size_t count,
                                                  const CUDA_MEMCPY3D* what, CUcontext context) {
                  CUDA_MEMCPY3D less = *what;
                  less.WidthInBytes -= 1;
                  return real_->graph_add_memcpy_node(node, graph, after, count, &less, context);
                };
              }),
              testing::HasSubstr("by a graph is wrong at byte"));
  EXPECT_THAT(
      complaint([](CudaDriver& driver) {
        driver.graph_exec_memcpy_node_set_params =
            [](CUgraphExec, CUgraphNode, const CUDA_MEMCPY3D*, CUcontext) { return CUDA_SUCCESS; };
      }),
      testing::ContainsRegex("by a patched graph is wrong at byte [0-9] of"));  // random bytes
  EXPECT_THAT(complaint([](CudaDriver& driver) {
                driver.memcpy_async = [](CUdeviceptr dst, CUdeviceptr src, std::size_t bytes,
                                         CUstream stream) {
                  return real_->memcpy_async(dst, src, bytes / 2, stream);
                };
              }),
              testing::HasSubstr("by streams is wrong at byte"));
}

TEST_F(GraphPhasesTest, CallersContextStaysCurrent) {
  const PrimaryContext primary(*driver_, 1);
  const CurrentContext current(*driver_, primary.get());
  measure(request(2));
  CUcontext now = nullptr;
  POLYPATH_CHECK(*driver_, ctx_get_current(&now));
  EXPECT_EQ(now, primary.get());
}

TEST_F(GraphPhasesTest, RequestsThatAreNotAllowedAreRefused) {
  for (const int nodes : {-2, 0, 1, 3, 258})
    EXPECT_THROW(measure(request(nodes)), InvalidArgument) << nodes;
  EXPECT_THROW(measure(request(8, 4 * 256 - 1)), InvalidArgument);
  EXPECT_NO_THROW(measure(request(8, 4 * 256)));
  GraphPhasesRequest wrong = request(2);
  wrong.iterations = 0;
  EXPECT_THROW(measure(wrong), InvalidArgument);
  for (const MemoryId dst : {MemoryId::gpu(99), MemoryId::host(99), MemoryId::gpu(0)}) {
    wrong = request(2);
    wrong.dst = dst;
    EXPECT_THROW(measure(wrong), InvalidArgument) << to_string(dst);
  }
}

TEST_F(GraphPhasesTest, DriverWithoutGraphs_IsNotSupported) {
  for (const auto& remove : std::vector<std::function<void(CudaDriver&)>>{
           [](CudaDriver& driver) { driver.graph_create = nullptr; },
           [](CudaDriver& driver) { driver.graph_add_memcpy_node = nullptr; },
           [](CudaDriver& driver) { driver.graph_instantiate = nullptr; },
           [](CudaDriver& driver) { driver.graph_launch = nullptr; },
           [](CudaDriver& driver) { driver.graph_exec_memcpy_node_set_params = nullptr; },
           [](CudaDriver& driver) { driver.graph_exec_destroy = nullptr; },
           [](CudaDriver& driver) { driver.graph_destroy = nullptr; }})
    EXPECT_THROW(measure(request(2), changed(remove)), NotSupported);
}

/// True: an object of the driver remains when this call is not carried out.
bool frees(const std::string& symbol) {
  return symbol.find("Destroy") != std::string::npos || symbol.find("Free") != std::string::npos ||
         symbol.find("Release") != std::string::npos;
}

TEST_F(GraphPhasesTest, FailedCall_IsNamedAndLeavesNothing) {
  if (!simulated_) GTEST_SKIP() << "a simulated node counts its objects";
  set_log_level(LogLevel::off);  // of destructors whose calls fail
  FaultInjector faults(driver_);
  const PrimaryContext keep(*driver_, 0);
  const CurrentContext current(*driver_, keep.get());
  // A context that a failing release left would take fewer calls than one that is made.
  std::deque<PrimaryContext> others;
  for (int gpu = 1; gpu < static_cast<int>(discovered_.gpus.size()); ++gpu)
    others.emplace_back(*driver_, gpu);
  const GraphPhasesRequest phases_request{MemoryId::gpu(0), MemoryId::gpu(1), 4 * kKiB, 4, 1};
  measure(phases_request, faults.driver());
  const std::uint64_t calls = faults.calls();
  std::uint64_t errors = 0;
  for (std::uint64_t failing = 1; failing <= calls; ++failing) {
    const test::LiveObjects before = test::live_objects(*driver_);
    faults.clear();
    faults.fail_call(failing, CUDA_ERROR_UNKNOWN);
    std::string message;
    try {
      measure(phases_request, faults.driver());  // succeeds when the call was a destructor's
    } catch (const DriverError& error) {
      message = error.what();
      ++errors;
    }
    const std::string symbol = faults.last_failed();
    SCOPED_TRACE("call " + std::to_string(failing) + " of " + std::to_string(calls) + ": " +
                 symbol);
    ASSERT_FALSE(symbol.empty());
    if (!message.empty()) {
      EXPECT_THAT(message, testing::HasSubstr(symbol));
    }
    // A failed call may have left another context current.
    POLYPATH_CHECK(*driver_, ctx_set_current(keep.get()));
    if (!frees(symbol)) {
      EXPECT_EQ(test::live_objects(*driver_), before);
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(errors, calls / 2);
  faults.clear();
  EXPECT_NO_THROW(measure(phases_request, faults.driver()));
}

}  // namespace
}  // namespace polypath
