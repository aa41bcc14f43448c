// The C API, as a program links it: status codes, messages, null arguments, and the JSON that it
// returns.
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "polypath/lab.h"

namespace {

using nlohmann::json;

/// A context that is destroyed with the scope.
class Handle {
 public:
  explicit Handle(std::vector<polypath_setting> settings = {}) {
    status = polypath_context_create(settings.data(), settings.size(), &context);
  }
  ~Handle() { polypath_context_destroy(context); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  polypath_context* context = nullptr;
  polypath_status status = POLYPATH_SUCCESS;
};

/// Parses what a function returned, and frees it.
template <typename Function, typename... Arguments>
json parsed(Function* function, Arguments... arguments) {
  char* text = nullptr;
  const polypath_status status = function(arguments..., &text);
  EXPECT_EQ(status, POLYPATH_SUCCESS) << polypath_last_error();
  if (text == nullptr) return json();
  json value = json::parse(text);
  polypath_free_string(text);
  return value;
}

void expect_keys(const json& object, const std::vector<const char*>& keys) {
  ASSERT_TRUE(object.is_object()) << object.dump();
  for (const char* key : keys) EXPECT_TRUE(object.contains(key)) << key;
  EXPECT_EQ(object.size(), keys.size()) << object.dump();
}

constexpr polypath_transfer_request kRequest{"gpu0", "gpu1", std::size_t{64} << 20};

TEST(CApi, VersionAndNames) {
  EXPECT_STREQ(polypath_version(), "0.1.0");
  EXPECT_STREQ(polypath_status_name(POLYPATH_SUCCESS), "POLYPATH_SUCCESS");
  EXPECT_STREQ(polypath_status_name(POLYPATH_INVALID_ARGUMENT), "POLYPATH_INVALID_ARGUMENT");
  EXPECT_STREQ(polypath_status_name(POLYPATH_NO_DEVICE), "POLYPATH_NO_DEVICE");
  EXPECT_STREQ(polypath_status_name(POLYPATH_NOT_SUPPORTED), "POLYPATH_NOT_SUPPORTED");
  EXPECT_STREQ(polypath_status_name(POLYPATH_DRIVER_ERROR), "POLYPATH_DRIVER_ERROR");
  EXPECT_STREQ(polypath_status_name(POLYPATH_INTERNAL_ERROR), "POLYPATH_INTERNAL_ERROR");
  EXPECT_STREQ(polypath_status_name(POLYPATH_COMMUNICATOR_ERROR), "POLYPATH_COMMUNICATOR_ERROR");
  EXPECT_STREQ(polypath_status_name(POLYPATH_FILE_ERROR), "POLYPATH_FILE_ERROR");
}

TEST(CApi, NullIsAllowedWhereItSaysSo) {
  polypath_free_string(nullptr);
  polypath_context_destroy(nullptr);
  EXPECT_TRUE(parsed(polypath_settings, static_cast<polypath_context*>(nullptr)).is_array());
}

TEST(CApi, NullArgumentsAreRefusedByName) {
  const auto refused = [](polypath_status status, const char* what) {
    EXPECT_EQ(status, POLYPATH_INVALID_ARGUMENT) << what;
    EXPECT_NE(std::strstr(polypath_last_error(), what), nullptr)
        << "'" << polypath_last_error() << "' does not name " << what;
  };
  const Handle handle;
  ASSERT_EQ(handle.status, POLYPATH_SUCCESS) << polypath_last_error();
  polypath_context* const context = handle.context;
  polypath_context* out = nullptr;
  char* text = nullptr;
  const polypath_setting nameless{nullptr, "1"};
  const polypath_transfer_request endless{"gpu0", nullptr, 1};
  const polypath_bench_request bench{&kRequest, 1, 1, 0, 1, 0};

  const polypath_tune_request tune{};
  polypath_tune_request hurried{};
  polypath_thresholds thresholds{};
  hurried.budget_s = -1;

  refused(polypath_context_create(nullptr, 0, nullptr), "context");
  refused(polypath_context_create(nullptr, 1, &out), "settings");
  refused(polypath_context_create(&nameless, 1, &out), "setting");
  EXPECT_EQ(out, nullptr);
  refused(polypath_copy_async(nullptr, nullptr, nullptr, 1, nullptr), "context");
  refused(polypath_copy_async(context, nullptr, &text, 1, nullptr), "dst");
  int issued = 0;
  refused(polypath_try_copy_async(nullptr, nullptr, nullptr, 1, nullptr, &issued), "context");
  refused(polypath_try_copy_async(context, nullptr, &text, 1, nullptr, &issued), "dst");
  refused(polypath_try_copy_async(context, &text, &text, 1, nullptr, nullptr), "issued");
  refused(polypath_split_thresholds(nullptr, &thresholds), "context");
  refused(polypath_split_thresholds(context, nullptr), "thresholds");
  EXPECT_EQ(polypath_driver_function(nullptr, "cuInit"), nullptr);
  EXPECT_EQ(polypath_driver_function(context, nullptr), nullptr);
  EXPECT_EQ(polypath_driver_function(context, "cuInit_v99"), nullptr);
  refused(polypath_counters_text(nullptr, &text), "context");
  refused(polypath_counters_text(context, nullptr), "text");
  refused(polypath_group_copy_async(nullptr, nullptr, 0), "context");
  refused(polypath_group_copy_async(context, nullptr, 1), "transfers");
  void* const nowhere[]{nullptr};
  const void* const from[]{&text};
  const std::size_t byte[]{1};
  refused(polypath_copy_batch_async(nullptr, 0, nullptr, nullptr, nullptr, nullptr), "context");
  refused(polypath_copy_batch_async(context, 1, nullptr, from, byte, nullptr), "dst");
  refused(polypath_copy_batch_async(context, 1, nowhere, from, byte, nullptr), "copy 0: dst");
  refused(polypath_try_copy_batch_async(context, 1, nowhere, from, byte, nullptr, nullptr),
          "issued");
  issued = 1;
  refused(polypath_try_copy_batch_async(context, 1, nowhere, from, byte, nullptr, &issued),
          "copy 0: dst");
  EXPECT_EQ(issued, 0);
  EXPECT_EQ(polypath_copy_batch_async(context, 0, nullptr, nullptr, nullptr, nullptr),
            POLYPATH_SUCCESS);
  refused(polypath_prepare_batches(context, nullptr, 1), "requests");
  refused(polypath_read_async(nullptr, 0, 0, &issued, 1, nullptr), "context");
  refused(polypath_read_async(context, -1, 0, &issued, 1, nullptr), "file descriptor -1");
  EXPECT_EQ(polypath_read_async(context, -1, 0, nullptr, 0, nullptr), POLYPATH_SUCCESS);
  const polypath_bench_blocks_request no_blocks{"gpu0", "gpu1", 0, 1, 0, 1, 0};
  refused(polypath_bench_blocks(nullptr, &no_blocks, nullptr, nullptr, &text), "context");
  refused(polypath_bench_blocks(context, nullptr, nullptr, nullptr, &text), "request");
  refused(polypath_bench_blocks(context, &no_blocks, nullptr, nullptr, &text), "blocks");
  refused(polypath_share_mapping(nullptr, &text, 1), "context");
  refused(polypath_share_mapping(context, nullptr, 1), "mapped");
  refused(polypath_share_mapping(context, &text, 1), "mapped");
  refused(polypath_unshare_mapping(nullptr, &text, 1), "context");
  EXPECT_EQ(polypath_unshare_mapping(context, &text, 1), POLYPATH_SUCCESS);
  const polypath_bench_file_request no_file{"gpu0", nullptr, 0, 0, 1, 0};
  const polypath_bench_file_request missing_file{"gpu0", "/nowhere", 0, 0, 1, 0};
  const polypath_bench_file_request to_host{"host0", nullptr, 4096, 0, 1, 0};
  refused(polypath_bench_file(nullptr, &no_file, nullptr, nullptr, &text), "context");
  refused(polypath_bench_file(context, nullptr, nullptr, nullptr, &text), "request");
  refused(polypath_bench_file(context, &no_file, nullptr, nullptr, &text), "no file");
  refused(polypath_bench_file(context, &missing_file, nullptr, nullptr, &text), "/nowhere");
  refused(polypath_bench_file(context, &to_host, nullptr, nullptr, &text), "no GPU");
  refused(polypath_prepare(nullptr, &kRequest, 1), "context");
  refused(polypath_prepare(context, nullptr, 1), "requests");
  refused(polypath_plan(nullptr, &kRequest, 1, &text), "context");
  refused(polypath_plan(context, &kRequest, 0, &text), "requests");
  refused(polypath_plan(context, &endless, 1, &text), "dst");
  refused(polypath_plan(context, &kRequest, 1, nullptr), "json");
  refused(polypath_topology(nullptr, &text), "context");
  refused(polypath_topology(context, nullptr), "json");
  refused(polypath_measure(nullptr, nullptr, nullptr), "context");
  refused(polypath_settings(context, nullptr), "json");
  refused(polypath_device_info(nullptr, &text), "context");
  refused(polypath_counters(nullptr, &text), "context");
  refused(polypath_counters_reset(nullptr), "context");
  refused(polypath_bench(nullptr, &bench, &text), "context");
  refused(polypath_bench(context, nullptr, &text), "request");
  refused(polypath_bench(context, &bench, &text), "iterations");
  refused(polypath_tune(nullptr, &tune, nullptr, nullptr, &text), "context");
  refused(polypath_tune(context, nullptr, nullptr, nullptr, &text), "request");
  refused(polypath_tune(context, &hurried, nullptr, nullptr, &text), "budget_s");
  refused(polypath_tuning_results(nullptr, &text), "context");
  refused(polypath_tuning_results(context, nullptr), "json");
  EXPECT_EQ(text, nullptr);
}

TEST(CApi, UnknownAddress_IssuesNothing) {
  const Handle handle;
  ASSERT_EQ(handle.status, POLYPATH_SUCCESS) << polypath_last_error();
  int issued = -1;
  EXPECT_EQ(polypath_try_copy_async(handle.context, reinterpret_cast<void*>(0x1000),
                                    reinterpret_cast<void*>(0x90000000), std::size_t{64} << 20,
                                    nullptr, &issued),
            POLYPATH_INVALID_ARGUMENT);
  EXPECT_EQ(issued, 0);
  EXPECT_EQ(polypath_last_cuda_result(), 0) << "the driver was not the cause";
  const auto version = reinterpret_cast<int (*)(int*)>(
      polypath_driver_function(handle.context, "cuDriverGetVersion"));
  int number = 0;
  ASSERT_NE(version, nullptr);
  EXPECT_EQ(version(&number), 0);
  EXPECT_GE(number, 12000);
  polypath_thresholds least{};
  EXPECT_EQ(polypath_split_thresholds(handle.context, &least), POLYPATH_SUCCESS);
  EXPECT_LT(least.gpu_to_gpu, std::size_t{1} << 30);
}

TEST(CApi, SettingsAndNamesThatAreWrongAreRefused) {
  const Handle range(std::vector<polypath_setting>{{"staging_size", "1K"}});
  EXPECT_EQ(range.status, POLYPATH_INVALID_ARGUMENT);
  EXPECT_EQ(range.context, nullptr);
  EXPECT_NE(std::strstr(polypath_last_error(), "4M to 4G"), nullptr) << polypath_last_error();
  const Handle unknown(std::vector<polypath_setting>{{"speed", "11"}});
  EXPECT_EQ(unknown.status, POLYPATH_INVALID_ARGUMENT);

  const Handle handle;
  char* text = nullptr;
  for (const polypath_transfer_request& request :
       {polypath_transfer_request{"gpu0", "gpu9", 1}, polypath_transfer_request{"gpu0", "cpu", 1},
        polypath_transfer_request{"", "gpu1", 1}, polypath_transfer_request{"gpu0", "gpu0", 1}}) {
    EXPECT_EQ(polypath_plan(handle.context, &request, 1, &text), POLYPATH_INVALID_ARGUMENT);
    EXPECT_STRNE(polypath_last_error(), "");
  }
  EXPECT_EQ(text, nullptr);
}

TEST(CApi, NoDeviceIsAStatus) {
  const Handle handle({{"node", ""}, {"driver_library", "libno_such_driver.so"}});
  EXPECT_EQ(handle.status, POLYPATH_NO_DEVICE);
  EXPECT_NE(std::strstr(polypath_last_error(), "POLYPATH_NODE=narval"), nullptr);
}

TEST(CApi, PlansHaveTheDocumentedShape) {
  const Handle handle;
  const json plan = parsed(polypath_plan, handle.context, &kRequest, std::size_t{1});
  expect_keys(plan, {"bytes", "predicted_us", "predicted_gbps", "native_us", "native_gbps",
                     "limit_gbps", "transfers", "loaded"});
  ASSERT_EQ(plan["transfers"].size(), 1u);
  const json& transfer = plan["transfers"][0];
  expect_keys(transfer, {"src", "dst", "bytes", "native", "reason", "routes", "excluded",
                         "copy_threads", "host_gbps"});
  ASSERT_GT(transfer["routes"].size(), 1u) << "narval splits 64 MiB";
  std::size_t bytes = 0;
  for (const json& route : transfer["routes"]) {
    expect_keys(route,
                {"route", "kind", "via", "bytes", "share", "chunks", "chunk_bytes", "rate_gbps"});
    bytes += route["bytes"].get<std::size_t>();
  }
  EXPECT_EQ(bytes, kRequest.bytes);
  const polypath_transfer_request host{"host0", "gpu1", 4096};
  for (const json& excluded :
       parsed(polypath_plan, handle.context, &host, std::size_t{1})["transfers"][0]["excluded"])
    expect_keys(excluded, {"route", "reason"});
}

TEST(CApi, PageableMemory_IsPlannedByItsName) {
  const Handle handle(std::vector<polypath_setting>{{"copy_threads", "8"}});
  const polypath_transfer_request to_gpu{"host:pageable", "gpu1", 64 << 20};
  const json plan = parsed(polypath_plan, handle.context, &to_gpu, std::size_t{1});
  const json& transfer = plan["transfers"][0];
  EXPECT_EQ(transfer["src"], "host0:pageable");
  EXPECT_EQ(transfer["copy_threads"], 8);
  EXPECT_FALSE(transfer["native"].get<bool>());
  EXPECT_GT(transfer["host_gbps"].get<double>(), plan["native_gbps"].get<double>());
  char* text = nullptr;
  const polypath_transfer_request wrong{"gpu0:pageable", "gpu1", 64 << 20};
  EXPECT_EQ(polypath_plan(handle.context, &wrong, 1, &text), POLYPATH_INVALID_ARGUMENT);
  const polypath_transfer_request group[]{to_gpu, to_gpu};
  EXPECT_EQ(polypath_plan(handle.context, group, 2, &text), POLYPATH_INVALID_ARGUMENT);
}

TEST(CApi, JsonReports_HaveTheDocumentedShape) {
  const Handle handle(std::vector<polypath_setting>{{"chunks", "7"}});
  const json topology = parsed(polypath_topology, handle.context);
  for (const char* key : {"name", "title", "source", "simulated", "fingerprint", "capacities",
                          "gpus", "hosts", "links", "ports", "costs", "emulated_mesh"})
    EXPECT_TRUE(topology.contains(key)) << key;
  EXPECT_EQ(topology["name"], "narval");
  EXPECT_EQ(topology["simulated"], true);
  EXPECT_EQ(topology["capacities"], "node file");
  EXPECT_EQ(topology["gpus"].size(), 4u);
  EXPECT_TRUE(topology["emulated_mesh"].is_null());

  const json devices = parsed(polypath_device_info, handle.context);
  expect_keys(devices, {"driver", "simulated", "nvml", "kernels", "graphs", "library", "version",
                        "profile", "devices", "staging"});
  expect_keys(devices["graphs"], {"supported", "cache_size", "counts"});
  EXPECT_EQ(devices["graphs"]["supported"], true);
  EXPECT_EQ(devices["graphs"]["cache_size"], 64);
  ASSERT_EQ(devices["devices"].size(), 4u);
  for (const json& device : devices["devices"])
    expect_keys(device, {"id", "name", "memory_bytes", "free_bytes", "context_active"});
  for (const json& memory : devices["staging"])
    expect_keys(memory, {"memory", "allowed", "reason", "bytes"});

  bool is_found = false;
  for (const json& setting : parsed(polypath_settings, handle.context)) {
    expect_keys(setting,
                {"name", "environment", "value", "origin", "default", "allowed", "meaning"});
    if (setting["name"] != "chunks") continue;
    is_found = true;
    EXPECT_EQ(setting["value"], "7");
    EXPECT_EQ(setting["origin"], "argument");
  }
  EXPECT_TRUE(is_found);
}

TEST(CApi, BenchVerifiesAndCountersCount) {
  const Handle handle;
  const polypath_bench_request request{&kRequest, 1, 1, 1, 1, 0};
  const json row = parsed(polypath_bench, handle.context, &request);
  EXPECT_EQ(row["verified"], true);
  EXPECT_GT(row["speedup"].get<double>(), 1.5) << row.dump();
  EXPECT_LE(row["polypath_gbps"].get<double>(), row["limit_gbps"].get<double>() * 1.001);

  const json counters = parsed(polypath_counters, handle.context);
  expect_keys(counters, {"transfers", "split",           "followed",         "pageable",
                         "files",     "native",          "failed",           "bytes",
                         "copies",    "changed_by_load", "native_by_reason", "left_out_by_reason",
                         "routes",    "links",           "batches",          "spreads",
                         "graphs",    "pinned",          "shared_mappings",  "staging"});
  expect_keys(counters["graphs"], {"launches", "hits", "patches", "patched_nodes", "builds",
                                   "evictions", "failed", "busy", "cached"});
  EXPECT_EQ(counters["graphs"]["launches"], 0) << "streams are the default";
  EXPECT_GT(counters["split"].get<int>(), 0);
  EXPECT_EQ(counters["bytes"].get<std::size_t>() % kRequest.bytes, 0u);
  ASSERT_FALSE(counters["staging"].empty());
  EXPECT_EQ(polypath_counters_reset(handle.context), POLYPATH_SUCCESS);
  const json reset = parsed(polypath_counters, handle.context);
  EXPECT_EQ(reset["transfers"], 0);
  EXPECT_EQ(reset["bytes"], 0);
  EXPECT_TRUE(reset["routes"].empty());
  EXPECT_EQ(reset["staging"], counters["staging"]) << "staging sizes are no counts";
}

TEST(CApi, GraphsCarryWhatTheSettingSays) {
  const Handle handle(std::vector<polypath_setting>{{"executor", "graph"}});
  const polypath_bench_request request{&kRequest, 1, 1, 1, 1, 0};
  const json row = parsed(polypath_bench, handle.context, &request);
  EXPECT_EQ(row["verified"], true);
  EXPECT_EQ(row["executor"], "graph");
  const json counters = parsed(polypath_counters, handle.context);
  EXPECT_EQ(counters["graphs"]["launches"], counters["split"]);
  EXPECT_EQ(parsed(polypath_device_info, handle.context)["graphs"]["counts"]["launches"],
            counters["split"]);
}

TEST(CApi, TuningReportsAndCanBeStopped) {
  const Handle handle;
  EXPECT_TRUE(parsed(polypath_tuning_results, handle.context)["choices"].empty());
  const std::size_t size = std::size_t{1} << 20;
  const polypath_tune_request request{&kRequest, 1, &size, 1, 600, 0, 0};

  // Stops as soon as the first choice is known.
  struct Seen {
    polypath_context* context;
    std::size_t total = 0;
    std::string first;
  } seen{handle.context, 0, {}};
  const polypath_tune_progress progress = [](std::size_t done, std::size_t total, double left,
                                             const char* what, void* user) {
    auto& seen_so_far = *static_cast<Seen*>(user);
    if (seen_so_far.first.empty()) seen_so_far.first = what;
    seen_so_far.total = total;
    EXPECT_LE(done, total);
    EXPECT_GT(left, 0);
    EXPECT_LE(left, 600);
    return parsed(polypath_tuning_results, seen_so_far.context)["choices"].empty() ? 0 : 7;
  };
  const json result =
      parsed(polypath_tune, handle.context, &request, progress, static_cast<void*>(&seen));
  expect_keys(result, {"profile", "choices", "collectives", "comm", "stopped", "seconds"});
  EXPECT_TRUE(result["collectives"].empty()) << result;
  EXPECT_EQ(result["stopped"], true);
  EXPECT_EQ(seen.total, 3u);
  EXPECT_EQ(seen.first, "gpu0 to gpu1, one way, 1 MiB");
  ASSERT_EQ(result["choices"].size(), 1u);
  const json& choice = result["choices"][0];
  expect_keys(choice, {"pattern", "pair", "bytes", "executor", "routes", "slots", "native_gbps",
                       "predicted_gbps", "measured_gbps", "tried", "edited"});
  EXPECT_EQ(choice["pattern"], "one way");
  EXPECT_EQ(choice["pair"], "gpu to gpu, nvlink x4, via 2 gpu, 1 host");
  EXPECT_EQ(choice["bytes"], size);
  EXPECT_EQ(choice["edited"], false);
  EXPECT_EQ(parsed(polypath_tuning_results, handle.context)["choices"], result["choices"]);
}

TEST(CApi, ZeroBytesAreDone) {
  const Handle handle;
  EXPECT_EQ(polypath_copy_async(handle.context, nullptr, nullptr, 0, nullptr), POLYPATH_SUCCESS);
  EXPECT_EQ(polypath_group_copy_async(handle.context, nullptr, 0), POLYPATH_SUCCESS);
}

TEST(CApi, ManyContextsComeAndGo) {
  for (int i = 0; i < 50; ++i) {
    const Handle first;
    const Handle second;
    ASSERT_EQ(first.status, POLYPATH_SUCCESS) << polypath_last_error();
    ASSERT_EQ(second.status, POLYPATH_SUCCESS) << polypath_last_error();
    if (i % 10 == 0) {
      EXPECT_EQ(polypath_prepare(second.context, &kRequest, 1), POLYPATH_SUCCESS)
          << polypath_last_error();
    }
  }
}

}  // namespace
