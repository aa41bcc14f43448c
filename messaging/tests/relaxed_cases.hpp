// Traffic for the relaxed orders, and what pairs without order are to be.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "matching_cases.hpp"

namespace polypath::test {

/// Each key once on both sides, in another order on each.
inline Traffic shuffled(std::uint32_t count, std::uint64_t seed, std::uint32_t sources = 1) {
  Traffic traffic;
  for (std::uint32_t i = 0; i < count; ++i)
    traffic.messages.push_back({i, static_cast<std::uint16_t>(i % sources), 5});
  std::mt19937_64 random(seed);
  std::ranges::shuffle(traffic.messages, random);
  traffic.receives = traffic.messages;
  std::ranges::shuffle(traffic.receives, random);
  return traffic;
}

inline constexpr TrafficCase kOrdered[] = {
    {"few", 20, 23, 3, 2, 1, 0, 20},
    {"one_source", 64, 64, 8, 1, 1, 0, 10},
    {"one_source_without_any_tag", 64, 64, 8, 1},
    {"not_all_of_a_window", 49, 61, 6, 1, 1, 0, 5},
    {"windows", 300, 310, 40, 1, 1, 0, 10},
    {"many_tags", 300, 300, 250, 1},
    {"sources", 200, 180, 4, 8, 3, 0, 10},
    {"one_key", 150, 150, 1, 1},
    {"all_any_tag", 130, 130, 8, 3, 1, 0, 100},
    {"few_messages", 10, 200, 2, 2, 1, 0, 10},
    {"few_receives", 200, 10, 2, 2, 1, 0, 10},
    {"no_messages", 0, 70, 2, 2, 1, 0, 10},
    {"no_receives", 70, 0, 2, 2},
    {"nothing", 0, 0, 1, 1},
};

inline constexpr TrafficCase kByKey[] = {
    {"few", 20, 23, 3, 2},
    {"keys", 200, 200, 16, 8},
    {"most_once", 250, 250, 1000, 1},
    {"communicators", 200, 180, 3, 4, 20},
    {"one_key", 200, 210, 1, 1},
    {"two_keys", 220, 200, 2, 1},
    {"few_messages", 10, 200, 2, 2},
    {"few_receives", 200, 10, 2, 2},
    {"no_messages", 0, 70, 2, 2},
    {"no_receives", 70, 0, 2, 2},
    {"nothing", 0, 0, 1, 1},
};

/// Whether as many of each key are paired as can be: "" or what is wrong.
inline std::string check_pairs_by_key(const Traffic& of,
                                      const std::vector<std::uint32_t>& matched_message) {
  std::map<std::uint64_t, std::array<std::uint32_t, 3>> keys;  // messages, receives, pairs
  std::vector<bool> is_taken(of.messages.size());
  for (const envelope& each : of.messages) ++keys[bits_of(each)][0];
  for (std::uint32_t i = 0; i < of.receives.size(); ++i) {
    auto& counts = keys[bits_of(of.receives[i])];
    ++counts[1];
    const std::uint32_t message = matched_message[i];
    if (message == kNone) continue;
    if (message >= of.messages.size()) return "a message that there is not";
    if (is_taken[message]) return "a message twice";
    is_taken[message] = true;
    if (of.messages[message] != of.receives[i]) return "a message of another key";
    ++counts[2];
  }
  for (const auto& [key, counts] : keys)
    if (counts[2] != std::min(counts[0], counts[1])) return "not as many as can be";
  return "";
}

}  // namespace polypath::test
