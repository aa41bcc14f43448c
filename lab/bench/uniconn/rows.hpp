// Rows that all ranks time together: UNICONN's calls, the library's own, and those once more, in
// alternation.
#pragma once

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "gpu.hpp"

namespace uniconn_bench {

namespace uc = polypath::uniconn;
using uniconn_example::Gpu;

/// The figures of one way.
struct Row {
  double us = 0;      ///< of an iteration, by the GPU's clock; of the slowest rank
  double cpu_ns = 0;  ///< of an iteration's calls, of the slowest rank
};

inline double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

/// Times `turns` calls of `iterate`. Collective.
template <typename Iterate>
Row timed(const uc::Bootstrap& meeting, const Gpu& gpu, int turns, const Iterate& iterate) {
  const double spent_ns =
      gpu.issue(meeting.rank(), turns, [&] { static_cast<void>(meeting.gather(char{})); }, iterate);
  const Row row{gpu.elapsed_us() / turns, spent_ns / turns};
  Row slower{};
  for (const Row& row_of_rank : meeting.gather(row))
    slower = {std::max(slower.us, row_of_rank.us), std::max(slower.cpu_ns, row_of_rank.cpu_ns)};
  return slower;
}

constexpr int kMaxTurns = 100;

/// The number of calls of something of `bytes` in a row: 4 to 100, and `most` at most.
inline int turns_of(std::size_t bytes, int most = kMaxTurns) {
  const std::size_t turns = (std::size_t{256} << 20) / (bytes + 1);
  return std::min(static_cast<int>(std::clamp<std::size_t>(turns, 4, kMaxTurns)), most);
}

/// Medians over pairs.
struct Compared {
  double us = 0;
  double cpu_ns = 0;
  bool has_native = false;
  double native_us = 0;
  double native_cpu_ns = 0;
  double speedup = 0;  ///< native time over that of UNICONN, of each pair
  double control = 0;  ///< as speedup, the library against itself
  double more_cpu_ns = 0;
};

/// To warm up.
constexpr int kUncounted = 2;
/// Rows of each way, for `pairs` pairs that count.
constexpr int rows_of_each(int pairs) { return kUncounted + pairs; }

/// `ours` and `native` give a Row.
template <typename Ours, typename Native>
Compared compared(int pairs, bool has_native, const Ours& ours, const Native& native) {
  std::vector<double> us, ns, native_us, native_ns, speedup, control, more;
  for (int pair = -kUncounted; pair < pairs; ++pair) {
    const Row row = ours();
    const Row first = has_native ? native() : Row{};
    const Row second = has_native ? native() : Row{};
    if (pair < 0) continue;
    us.push_back(row.us);
    ns.push_back(row.cpu_ns);
    native_us.push_back(first.us);
    native_ns.push_back(first.cpu_ns);
    speedup.push_back(first.us / row.us);
    control.push_back(first.us / second.us);
    more.push_back(row.cpu_ns - first.cpu_ns);
  }
  return {median(us),        median(ns),      has_native,      median(native_us),
          median(native_ns), median(speedup), median(control), median(more)};
}

/// A line of JSON: `fields`, what was compared with times for each of `messages` in an iteration
/// and CPU time for each of `calls`, and whether contents were right.
inline void print(const std::string& fields, const Compared& row, double messages, double calls,
                  bool is_right) {
  std::printf("{%s, \"us\": %.3f, \"cpu_ns\": %.0f, ", fields.c_str(), row.us / messages,
              row.cpu_ns / calls);
  if (row.has_native) {
    std::printf(
        "\"native_us\": %.3f, \"speedup\": %.4f, \"control\": %.4f, \"native_cpu_ns\": %.0f, "
        "\"more_cpu_ns\": %.0f, ",
        row.native_us / messages, row.speedup, row.control, row.native_cpu_ns / calls,
        row.more_cpu_ns / calls);
  } else {
    std::printf(
        "\"native_us\": null, \"speedup\": null, \"control\": null, \"native_cpu_ns\": null, "
        "\"more_cpu_ns\": null, ");
  }
  std::printf("\"verified\": %s}\n", is_right ? "true" : "false");
  std::fflush(stdout);
}

}  // namespace uniconn_bench
