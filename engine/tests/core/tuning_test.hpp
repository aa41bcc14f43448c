// The fixture of tests of the tuner: a small simulated node, a profile in a folder of the test's
// own.
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "lab/tuning.hpp"
#include "support/simulated_test.hpp"
#include "support/temporary_folder.hpp"

namespace polypath::test {

/// What a search reported.
struct Reports {
  TuningResult result;
  std::size_t total = 0;        ///< tasks: a pattern of a pair at a size
  std::size_t calls = 0;        ///< about one a measurement
  std::set<std::string> tasks;  ///< that were begun
};

class TuningTest : public SimulatedTest {
 protected:
  static constexpr std::uint64_t kBytes = kMiB;
  static constexpr const char* kClass = "gpu to gpu, nvlink x2, via 1 gpu, 1 host";

  [[nodiscard]] std::filesystem::path profile() const { return folder_.path() / "node.toml"; }
  [[nodiscard]] std::string text() const {
    std::stringstream all;
    all << std::ifstream(profile()).rdbuf();
    return all.str();
  }
  void replace(const std::string& old_text, const std::string& new_text) const {
    std::string changed = text();
    const auto at = changed.find(old_text);
    ASSERT_NE(at, std::string::npos) << old_text << " is not in\n" << changed;
    changed.replace(at, old_text.size(), new_text);
    std::ofstream(profile()) << changed;
  }

  /// A context with that profile, and with these settings.
  [[nodiscard]] std::unique_ptr<Context> open(OptionArguments arguments = {}) const {
    bool named = false;
    for (const auto& [name, value] : arguments) named = named || name == "profile";
    if (!named) arguments.emplace_back("profile", profile().string());
    arguments.emplace_back("log_level", "off");
    return std::make_unique<Context>(arguments);
  }

  /// GPU 0 to GPU 1, one size.
  [[nodiscard]] static TuningRequest one_pair(std::uint64_t bytes = kBytes) {
    TuningRequest request;
    request.pairs = {{MemoryId::gpu(0), MemoryId::gpu(1), 0}};
    request.sizes = {bytes};
    request.budget_s = 600;
    return request;
  }

  /// Tunes; `stop` is asked at each report.
  static Reports tune(
      Context& context, TuningRequest request,
      const std::function<bool()>& stop = [] { return false; }) {
    Reports reports;
    bool stopped = false;
    Tuning tuning(context, std::move(request),
                  [&](std::size_t, std::size_t total, double, const std::string& what) {
                    reports.total = total;
                    ++reports.calls;
                    if (what != "done") reports.tasks.insert(what);
                    EXPECT_FALSE(stopped) << "asked again after it was stopped";
                    stopped = stop();
                    return !stopped;
                  });
    reports.result = tuning.run();
    return reports;
  }

  static const TunedTransfer* known(const Context& context, Pattern pattern, ExecutorKind executor,
                                    std::uint64_t bytes = kBytes) {
    return context.source().tables.table<TunedTransfer>().find(
        {.pattern = pattern, .pair = kClass, .choice = {.bytes = bytes}, .executor = executor});
  }

  /// Writes a profile with one choice for the pair: half direct, half by the other GPU in `chunks`.
  void write_choice(Pattern pattern, ExecutorKind executor, double share, int chunks,
                    double measured_gbps = 100) const {
    const auto context = open();
    TunedTransfer entry;
    entry.pattern = pattern;
    entry.pair = kClass;
    entry.choice = {kBytes,
                    {{RouteKind::direct, 1 - share, 1}, {RouteKind::via_gpu, share, chunks}}};
    entry.executor = executor;
    entry.native_gbps = 50;
    entry.measured_gbps = measured_gbps;
    context->save_tuned_transfer(entry);
  }

  [[nodiscard]] Plan plan_of(Context& context, std::uint64_t bytes = kBytes) const {
    return context.plan({{MemoryId::gpu(0), MemoryId::gpu(1), bytes}});
  }
  /// "direct 0.50/1, via gpu2 0.50/4".
  [[nodiscard]] static std::string table(const Plan& plan) {
    std::string line;
    for (const RouteShare& share : plan.transfers.front().routes)
      line += fmt::format("{}{} {:.2f}/{}", line.empty() ? "" : ", ", to_string(share.route),
                          static_cast<double>(share.bytes) /
                              static_cast<double>(plan.transfers.front().request.bytes),
                          share.chunks);
    return line;
  }

  /// One verified transfer must go as `plan` says, on a stream that is idle or holds work already.
  void expect_goes_as(Context& context, const Plan& plan, bool behind_work = false) {
    const Request& request = plan.transfers.front().request;
    const Payload data = payload({request.src, request.dst, request.bytes});
    context.prepare({request});
    const Stream stream = stream_on(0);
    const Payload work = payload({MemoryId::gpu(0), MemoryId::gpu(0), kBytes});
    const Transfer ahead = work.transfer(stream.get());
    const Traffic traffic(context);
    if (behind_work)
      POLYPATH_CHECK(driver(), memcpy_async(ahead.dst, ahead.src, ahead.bytes, ahead.stream));
    copy(context, data.transfer(stream.get()));
    synchronize(stream.get());
    EXPECT_TRUE(data.arrived());
    if (plan.native())
      EXPECT_TRUE(traffic.went_natively(NativeReason::no_gain, request.bytes));
    else
      EXPECT_TRUE(traffic.went_as(plan));
  }

  TemporaryFolder folder_;
};

}  // namespace polypath::test
