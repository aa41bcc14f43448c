// polypath_graph_phases, as a program links it: its JSON on narval, and what it refuses.
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "polypath/lab.h"

namespace {

using nlohmann::json;

class CApiGraphPhases : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(polypath_context_create(nullptr, 0, &context_), POLYPATH_SUCCESS)
        << polypath_last_error();
  }
  void TearDown() override { polypath_context_destroy(context_); }

  void refused(polypath_graph_phases_request request, const char* what) {
    char* text = nullptr;
    EXPECT_EQ(polypath_graph_phases(context_, &request, &text), POLYPATH_INVALID_ARGUMENT) << what;
    EXPECT_NE(std::strstr(polypath_last_error(), what), nullptr) << polypath_last_error();
    EXPECT_EQ(text, nullptr);
  }

  polypath_context* context_ = nullptr;
};

constexpr polypath_graph_phases_request kPhasesRequest{"gpu0", "gpu1", 1 << 20, 4, 1};

TEST_F(CApiGraphPhases, HaveTheDocumentedShapeInVirtualTime) {
  char* text = nullptr;
  ASSERT_EQ(polypath_graph_phases(context_, &kPhasesRequest, &text), POLYPATH_SUCCESS)
      << polypath_last_error();
  const json phases = json::parse(text);
  polypath_free_string(text);
  std::set<std::string> keys;
  for (const auto& [key, value] : phases.items()) keys.insert(key);
  const std::set<std::string> documented{"bytes",
                                         "nodes",
                                         "via",
                                         "create_us",
                                         "construct_us",
                                         "instantiate_us",
                                         "launch_us",
                                         "first_launch_us",
                                         "patch_us",
                                         "destroy_us",
                                         "first_latency_us",
                                         "latency_us",
                                         "gpu_bytes",
                                         "stream_issue_us",
                                         "stream_latency_us",
                                         "verified",
                                         "patched_latency_us"};
  EXPECT_EQ(keys, documented);
  EXPECT_EQ(phases["bytes"], kPhasesRequest.bytes);
  EXPECT_EQ(phases["nodes"], 4);
  EXPECT_EQ(phases["via"], "gpu2");
  EXPECT_EQ(phases["verified"], true);

  // The calls of a simulated driver take the times of the node file, on any CPU.
  ASSERT_EQ(polypath_topology(context_, &text), POLYPATH_SUCCESS);
  const json costs = json::parse(text)["costs"];
  polypath_free_string(text);
  EXPECT_NEAR(phases["create_us"].get<double>(), costs["graph_create_us"].get<double>(), 1e-3);
  EXPECT_NEAR(phases["patch_us"].get<double>(), 4 * costs["graph_set_node_us"].get<double>(), 1e-3);
}

TEST_F(CApiGraphPhases, RefuseWhatIsNotAllowedByName) {
  refused({nullptr, "gpu1", 1 << 20, 4, 1}, "src");
  refused({"gpu0", nullptr, 1 << 20, 4, 1}, "dst");
  refused({"gpu0", "moon", 1 << 20, 4, 1}, "moon");
  refused({"gpu0", "gpu9", 1 << 20, 4, 1}, "gpu9");
  refused({"gpu0", "gpu1", 100, 4, 1}, "bytes");
  refused({"gpu0", "gpu1", 1 << 20, 5, 1}, "nodes");
  refused({"gpu0", "gpu1", 1 << 20, 4, 0}, "iterations");

  char* text = nullptr;
  EXPECT_EQ(polypath_graph_phases(nullptr, &kPhasesRequest, &text), POLYPATH_INVALID_ARGUMENT);
  EXPECT_EQ(polypath_graph_phases(context_, nullptr, &text), POLYPATH_INVALID_ARGUMENT);
  EXPECT_EQ(polypath_graph_phases(context_, &kPhasesRequest, nullptr), POLYPATH_INVALID_ARGUMENT);
  EXPECT_EQ(text, nullptr);
}

}  // namespace
