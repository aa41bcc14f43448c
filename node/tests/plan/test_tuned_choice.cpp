// Which tuned choice serves a transfer, and how an edited one is told.
#include "plan/tuned_transfer.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "base/units.hpp"

namespace polypath {
namespace {

constexpr const char* kPair = "gpu to gpu, nvlink x4, via 2 gpu, 1 host";

TunedTransfer tuned(std::uint64_t bytes, ExecutorKind executor = ExecutorKind::stream,
                    double measured_gbps = 200, double native_gbps = 100) {
  TunedTransfer entry;
  entry.pair = kPair;
  entry.choice = {bytes, {{RouteKind::direct, .4, 1}, {RouteKind::via_gpu, .6, 8}}, 0};
  entry.executor = executor;
  entry.native_gbps = native_gbps;
  entry.measured_gbps = measured_gbps;
  return entry;
}

/// Bytes of the choice that serves; 0: none.
std::uint64_t served_by(const std::vector<TunedTransfer>& all, std::uint64_t bytes,
                        std::optional<ExecutorKind> executor = std::nullopt) {
  const TunedTransfer* const entry = find_choice(all, Pattern::one_way, kPair, bytes, executor);
  return entry == nullptr ? 0 : entry->choice.bytes;
}

std::optional<ExecutorKind> executor_of(const std::vector<TunedTransfer>& all) {
  const TunedTransfer* const entry =
      find_choice(all, Pattern::one_way, kPair, 16 * kMiB, std::nullopt);
  return entry == nullptr ? std::nullopt : std::optional(entry->executor);
}

TEST(FindChoice, NearestSizeServes) {
  const std::vector<TunedTransfer> all = {tuned(4 * kMiB), tuned(64 * kMiB), tuned(16 * kMiB)};
  struct Row {
    std::uint64_t bytes;
    std::uint64_t served_by;
  };
  for (const auto& [bytes, expected] : {
           Row{kMiB, 0},
           Row{4 * kMiB * 69 / 100, 0},  // below 0.7 of the smallest: nothing is known
           Row{4 * kMiB * 71 / 100, 4 * kMiB},
           Row{4 * kMiB, 4 * kMiB},
           Row{11 * kMiB, 4 * kMiB},  // 0.69 of the next
           Row{12 * kMiB, 16 * kMiB},
           Row{31 * kMiB, 16 * kMiB},
           Row{46 * kMiB, 64 * kMiB},
           Row{64 * kMiB + 1, 64 * kMiB},
           Row{4 * kGiB, 64 * kMiB},
       })
    EXPECT_EQ(served_by(all, bytes), expected) << format_bytes(bytes);
  EXPECT_EQ(served_by({}, kMiB), 0u);
}

TEST(FindChoice, OnlyOfItsPatternAndClass) {
  std::vector<TunedTransfer> all = {tuned(16 * kMiB)};
  all[0].pattern = Pattern::window;
  EXPECT_EQ(served_by(all, 16 * kMiB), 0u);
  EXPECT_EQ(find_choice(all, Pattern::window, kPair, 16 * kMiB, std::nullopt), all.data());
  EXPECT_EQ(find_choice(all, Pattern::window, "gpu to host", 16 * kMiB, std::nullopt), nullptr);
}

TEST(FindChoice, RequestedExecutorIsKept) {
  const std::vector<TunedTransfer> all = {tuned(16 * kMiB, ExecutorKind::stream, 100),
                                          tuned(64 * kMiB, ExecutorKind::graph, 300)};
  EXPECT_EQ(served_by(all, 64 * kMiB, ExecutorKind::stream), 16 * kMiB);
  EXPECT_EQ(served_by(all, 64 * kMiB, ExecutorKind::graph), 64 * kMiB);
  EXPECT_EQ(served_by(all, 16 * kMiB, ExecutorKind::graph), 0u);
}

TEST(FindChoice, WithoutOneTheFasterExecutorServes) {
  using enum ExecutorKind;
  const auto faster = [](TunedTransfer first, TunedTransfer second) {
    const auto executor = executor_of({first, second});
    EXPECT_EQ(executor_of({second, first}), executor) << "whichever stands first";
    return executor;
  };
  constexpr std::uint64_t bytes = 16 * kMiB;
  EXPECT_EQ(faster(tuned(bytes, stream, 200), tuned(bytes, graph, 190)), stream);
  EXPECT_EQ(faster(tuned(bytes, stream, 200), tuned(bytes, graph, 210)), graph);
  // Against the native copies of their own runs: those of a node drift.
  EXPECT_EQ(faster(tuned(bytes, stream, 200, 80), tuned(bytes, graph, 210, 100)), stream);
  // As fast within 0.3 %: the graph costs the CPU less.
  EXPECT_EQ(faster(tuned(bytes, stream, 200), tuned(bytes, graph, 200)), graph);
  EXPECT_EQ(faster(tuned(bytes, stream, 200), tuned(bytes, graph, 199.5)), graph);
  EXPECT_EQ(faster(tuned(bytes, stream, 200), tuned(bytes, graph, 199.3)), stream);
  // An entry without a measured rate loses.
  EXPECT_EQ(faster(tuned(bytes, stream, 200), tuned(bytes, graph, 0, 0)), stream);
  EXPECT_EQ(faster(tuned(bytes, stream, 0, 0), tuned(bytes, graph, 101)), graph);
}

TEST(FindChoice, NativeCopyAsGraph_GetsNoBonus) {
  TunedTransfer native = tuned(16 * kMiB, ExecutorKind::graph, 100);
  native.choice = native_choice(16 * kMiB);
  EXPECT_EQ(executor_of({tuned(16 * kMiB, ExecutorKind::stream, 100.1), native}),
            ExecutorKind::stream);
}

TEST(Digest, ChangesWithEverythingThatPlansFollow) {
  const std::uint32_t before = digest(tuned(16 * kMiB));
  const auto changed = [](const std::function<void(TunedTransfer&)>& change) {
    TunedTransfer entry = tuned(16 * kMiB);
    change(entry);
    return digest(entry);
  };
  const std::vector<std::pair<const char*, std::function<void(TunedTransfer&)>>> edits = {
      {"pattern", [](TunedTransfer& entry) { entry.pattern = Pattern::window; }},
      {"pair", [](TunedTransfer& entry) { entry.pair.back() = 's'; }},
      {"bytes", [](TunedTransfer& entry) { entry.choice.bytes += 4096; }},
      {"executor", [](TunedTransfer& entry) { entry.executor = ExecutorKind::graph; }},
      {"kind", [](TunedTransfer& entry) { entry.choice.routes[1].kind = RouteKind::via_host; }},
      {"share", [](TunedTransfer& entry) { entry.choice.routes[1].share += .0001; }},
      {"chunks", [](TunedTransfer& entry) { entry.choice.routes[1].chunks = 9; }},
      {"slots", [](TunedTransfer& entry) { entry.choice.slots = 4; }},
      {"a route more", [](TunedTransfer& entry) { entry.choice.routes.push_back({}); }},
      {"order",
       [](TunedTransfer& entry) { std::swap(entry.choice.routes[0], entry.choice.routes[1]); }},
  };
  for (const auto& [what, edit] : edits) EXPECT_NE(changed(edit), before) << what;
}

TEST(Digest, IgnoresFiguresAndUnwrittenDigits) {
  TunedTransfer entry = tuned(16 * kMiB);
  const std::uint32_t before = digest(entry);
  entry.native_gbps = entry.predicted_gbps = entry.measured_gbps = 1;
  entry.tried = 7;
  entry.edited = true;
  entry.choice.routes[1].share += 1e-9;  // the file has four decimals
  EXPECT_EQ(digest(entry), before);
}

}  // namespace
}  // namespace polypath
