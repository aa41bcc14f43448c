// Runs the kernels of relaxed_kernels.cu on the host, and says whether what they left is right.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "matching_cases.hpp"
#include "queue_memory.hpp"
#include "relaxed_cases.hpp"
#include "relaxed_kernels.h"
#include "simt/run.hpp"

namespace polypath::test {

/// What a batch leaves.
struct Results {
  static constexpr std::uint32_t kPoison = 0xDEADBEEF;
  explicit Results(const Traffic& traffic)
      : matched_message(traffic.receives.size() + 1, kPoison),
        matched_receive(traffic.messages.size() + 1, kPoison) {}

  device::match_batch batch(const Traffic& traffic) {
    return {traffic.messages.data(),
            static_cast<std::uint32_t>(traffic.messages.size()),
            static_cast<std::uint32_t>(traffic.receives.size()),
            traffic.receives.data(),
            matched_message.data(),
            matched_receive.data()};
  }

  std::vector<std::uint32_t> matched_message;
  std::vector<std::uint32_t> matched_receive;
  alignas(8) device::match_outcome outcome{device::match_status::full, 7, 7, 7, 7, 7};
  std::string error;  ///< of the run
};

enum class By { warp, block, grid };

/// One warp or block. `before`: what it matched before, in the same memory.
inline Results run_group(const char* kernel, By by, const Traffic& traffic, std::uint64_t seed,
                         const Traffic* before = nullptr, std::uint64_t hash_seed = 0) {
  Results results(traffic);
  const Traffic nothing;
  Results earlier(before != nullptr ? *before : nothing);
  RelaxedRow row{{}, results.batch(traffic), &results.outcome, hash_seed, by == By::warp};
  if (before != nullptr) row.first = earlier.batch(*before);
  simt::Launch launch = simt::launch(kernel, 0, 1, by == By::warp ? 32 : 128, row);
  launch.shared_bytes = std::size_t{64} << 10;
  simt::RunOptions options;
  options.seed = seed;
  results.error = simt::run({{launch}}, options);
  return results;
}

/// All blocks, split into 2^bits partitions.
inline Results run_split(const Traffic& traffic, unsigned bits, std::uint64_t seed) {
  using Workspace = device::partitioned_workspace;
  Results results(traffic);
  const auto capacity =
      static_cast<std::uint32_t>(std::max(traffic.messages.size(), traffic.receives.size()));
  LineBytes memory(Workspace::split_bytes(capacity, bits), 0xC3);
  const device::split_view view =
      Workspace::cut(memory.get<unsigned char>(), capacity, results.batch(traffic), bits);
  std::vector<simt::Launch> row;
  for (unsigned phase = 0; phase <= Workspace::kOfSplit; ++phase)
    row.push_back(simt::launch("polypath_test_split", 0, 3, 128, view, &results.outcome, phase));
  simt::RunOptions options;
  options.seed = seed;
  results.error = simt::run({row}, options);
  return results;
}

/// All blocks, in MPI's order or partitioned, as a matcher does it. `at_once`: by one launch, whose
/// blocks meet between the phases, after one of another number of blocks; else by a launch a
/// phase.
template <typename Workspace>
Results run_grid(const std::string& order, const Traffic& traffic, std::uint32_t capacity,
                 std::uint64_t seed, bool at_once) {
  Results results(traffic);
  Results earlier(traffic);
  LineBytes memory(Workspace::bytes(capacity), 0xC3);
  LineBytes meetings(sizeof(std::uint32_t), 0);
  GridRow args{results.batch(traffic), &results.outcome, memory.get<unsigned char>(), capacity,
               meetings.get<std::uint32_t>()};
  std::vector<simt::Launch> row;
  if (at_once) {
    GridRow before = args;
    before.batch = earlier.batch(traffic);
    before.outcome = &earlier.outcome;
    row.push_back(simt::launch("polypath_test_together_" + order, 0, 4, 32, before));
    row.push_back(simt::launch("polypath_test_together_" + order, 0, 3, 64, args));
  } else {
    for (unsigned phase = 0; phase <= Workspace::kPhases; ++phase) {
      const bool by_one = phase < Workspace::kPhases && Workspace::runs_in_one_warp(phase);
      row.push_back(simt::launch("polypath_test_grid_" + order, 0, by_one ? 1 : 3, by_one ? 32 : 64,
                                 args, phase));
    }
  }
  simt::RunOptions options;
  options.seed = seed;
  results.error = simt::run({row}, options);
  return results;
}

/// Blocks that meet, in launches of several sizes. "" or what was wrong.
inline std::string run_meetings(std::uint64_t seed) {
  LineBytes memory(512 * sizeof(std::uint32_t), 0);
  auto* const words = memory.get<std::uint32_t>();
  std::vector<simt::Launch> row;
  const MeetingRow args{words, words + 32, words + 1, words + 2};
  for (const unsigned blocks : {3U, 1U, 5U})
    row.push_back(simt::launch("polypath_test_meeting", 0, blocks, 32, args));
  simt::RunOptions options;
  options.seed = seed;
  const std::string error = simt::run({row}, options);
  if (!error.empty()) return error;
  if (words[1] != 0) return "a block did not see what all had stored";
  return words[2] == row.size() ? "" : "not one block was the last";
}

/// All blocks, by a table in memory of the GPU; `before` as run_group(). `log2`: of its slots; 0:
/// as many as it should have.
inline Results run_table(bool unique, const Traffic& batch, std::uint64_t seed,
                         const Traffic* before = nullptr, std::uint64_t hash_seed = 0,
                         std::uint32_t log2 = 0) {
  using Workspace = device::hashed_workspace;
  Results results(batch);
  const Traffic nothing;
  Results earlier(before != nullptr ? *before : nothing);
  const auto capacity = static_cast<std::uint32_t>(
      std::max(batch.messages.size(), before != nullptr ? before->messages.size() : 0));
  LineBytes memory(Workspace::bytes(capacity), 0xC3);
  std::vector<simt::Launch> row;
  const auto add = [&](const Traffic& traffic, Results& outcomes) {
    device::table_view view = Workspace::cut(memory.get<unsigned char>(), outcomes.batch(traffic));
    view.seed = hash_seed;
    if (log2 != 0) view.slots_log2 = log2;
    for (unsigned phase = 0; phase <= Workspace::kPhases; ++phase)
      row.push_back(simt::launch(unique ? "polypath_test_table_unique" : "polypath_test_table", 0,
                                 3, 64, view, &outcomes.outcome, phase));
  };
  if (before != nullptr) add(*before, earlier);
  add(batch, results);
  simt::RunOptions options;
  options.seed = seed;
  results.error = simt::run({row}, options);
  return results;
}

/// What is the same for all orders: "" or what was wrong.
inline std::string check_counts(const Traffic& traffic, const Results& results) {
  if (!results.error.empty()) return results.error;
  if (results.matched_message.back() != Results::kPoison ||
      results.matched_receive.back() != Results::kPoison)
    return "written behind the results";
  if (results.outcome.status != device::match_status::done) return "refused";
  std::vector<std::uint32_t> inverse(traffic.messages.size(), kNone);
  std::uint32_t matches = 0;
  for (std::uint32_t i = 0; i < traffic.receives.size(); ++i) {
    const std::uint32_t message = results.matched_message[i];
    if (message == kNone) continue;
    if (message >= traffic.messages.size()) return "a message that there is not";
    if (inverse[message] != kNone) return "a message twice";
    inverse[message] = i;
    ++matches;
  }
  if (!std::equal(inverse.begin(), inverse.end(), results.matched_receive.begin()))
    return "messages and receives do not agree";
  if (results.outcome.matches != matches ||
      results.outcome.unmatched_messages != traffic.messages.size() - matches ||
      results.outcome.unmatched_receives != traffic.receives.size() - matches)
    return "wrong counts";
  return "";
}

/// In order, exactly.
inline std::string check_ordered(const Traffic& traffic, const Results& results) {
  if (const std::string wrong = check_counts(traffic, results); !wrong.empty()) return wrong;
  const std::vector<std::uint32_t> expected = match_literally(traffic, 1);
  return std::equal(expected.begin(), expected.end(), results.matched_message.begin())
             ? ""
             : "another pair than by the rule";
}

/// As many of each key as can be.
inline std::string check_by_key(const Traffic& traffic, const Results& results) {
  const std::string wrong = check_counts(traffic, results);
  return wrong.empty() ? check_pairs_by_key(traffic, results.matched_message) : wrong;
}

/// Nothing was matched, for that reason.
inline std::string check_refused(const Traffic& traffic, const Results& results,
                                 device::match_status why) {
  if (!results.error.empty()) return results.error;
  if (results.outcome.status != why)
    return "status " + std::to_string(static_cast<std::uint32_t>(results.outcome.status));
  if (results.outcome.matches != 0) return "matches";
  for (std::size_t i = 0; i < traffic.receives.size(); ++i)
    if (results.matched_message[i] != kNone) return "a receive has a message";
  for (std::size_t i = 0; i < traffic.messages.size(); ++i)
    if (results.matched_receive[i] != kNone) return "a message has a receive";
  return "";
}

}  // namespace polypath::test
