// The node that a test runs on: the simulated one that POLYPATH_NODE names, or this machine's GPUs.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "driver/cuda_driver.hpp"
#include "driver/nvml.hpp"
#include "topology/discover.hpp"
#include "topology/node_file.hpp"

namespace polypath::test {

/// Skips where there is neither a simulated node nor a GPU.
class NodeTest : public testing::Test {
 protected:
  void SetUp() override {
    const char* name = std::getenv("POLYPATH_NODE");
    simulated_ = name != nullptr && *name != '\0';
    std::string why;
    driver_ = load_cuda_driver(simulated_ ? POLYPATH_SIM_LIBRARY : "libcuda.so.1", &why);
    if (!simulated_ && driver_ == nullptr) GTEST_SKIP() << "no GPU here: " << why;
    ASSERT_NE(driver_, nullptr) << why;
    const auto nvml = load_nvml(simulated_ ? POLYPATH_SIM_LIBRARY : "libnvidia-ml.so.1", &why);
    discovered_ = discover_node(*driver_, nvml.get());
    if (simulated_) file_ = read_node_file(find_node_file(name));
  }

  bool simulated_ = false;
  std::shared_ptr<const CudaDriver> driver_;
  Node discovered_;
  Node file_;  ///< of a simulated node: what it obeys
};

}  // namespace polypath::test
