// Traffic for the relaxed orders, and the pairs to expect without order.
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
    {.name = "few", .messages = 20, .receives = 23, .tags = 3, .sources = 2, .any_tag_percent = 20},
    {.name = "one_source",
     .messages = 64,
     .receives = 64,
     .tags = 8,
     .sources = 1,
     .any_tag_percent = 10},
    {.name = "one_source_without_any_tag", .messages = 64, .receives = 64, .tags = 8, .sources = 1},
    {.name = "not_all_of_a_window",
     .messages = 49,
     .receives = 61,
     .tags = 6,
     .sources = 1,
     .any_tag_percent = 5},
    {.name = "windows",
     .messages = 300,
     .receives = 310,
     .tags = 40,
     .sources = 1,
     .any_tag_percent = 10},
    {.name = "many_tags", .messages = 300, .receives = 300, .tags = 250, .sources = 1},
    {.name = "sources",
     .messages = 200,
     .receives = 180,
     .tags = 4,
     .sources = 8,
     .communicators = 3,
     .any_tag_percent = 10},
    {.name = "one_key", .messages = 150, .receives = 150, .tags = 1, .sources = 1},
    {.name = "all_any_tag",
     .messages = 130,
     .receives = 130,
     .tags = 8,
     .sources = 3,
     .any_tag_percent = 100},
    {.name = "few_messages",
     .messages = 10,
     .receives = 200,
     .tags = 2,
     .sources = 2,
     .any_tag_percent = 10},
    {.name = "few_receives",
     .messages = 200,
     .receives = 10,
     .tags = 2,
     .sources = 2,
     .any_tag_percent = 10},
    {.name = "no_messages",
     .messages = 0,
     .receives = 70,
     .tags = 2,
     .sources = 2,
     .any_tag_percent = 10},
    {.name = "no_receives", .messages = 70, .receives = 0, .tags = 2, .sources = 2},
    {.name = "nothing", .messages = 0, .receives = 0, .tags = 1, .sources = 1},
};

inline constexpr TrafficCase kByKey[] = {
    {.name = "few", .messages = 20, .receives = 23, .tags = 3, .sources = 2},
    {.name = "keys", .messages = 200, .receives = 200, .tags = 16, .sources = 8},
    {.name = "most_once", .messages = 250, .receives = 250, .tags = 1000, .sources = 1},
    {.name = "communicators",
     .messages = 200,
     .receives = 180,
     .tags = 3,
     .sources = 4,
     .communicators = 20},
    {.name = "one_key", .messages = 200, .receives = 210, .tags = 1, .sources = 1},
    {.name = "two_keys", .messages = 220, .receives = 200, .tags = 2, .sources = 1},
    {.name = "few_messages", .messages = 10, .receives = 200, .tags = 2, .sources = 2},
    {.name = "few_receives", .messages = 200, .receives = 10, .tags = 2, .sources = 2},
    {.name = "no_messages", .messages = 0, .receives = 70, .tags = 2, .sources = 2},
    {.name = "no_receives", .messages = 70, .receives = 0, .tags = 2, .sources = 2},
    {.name = "nothing", .messages = 0, .receives = 0, .tags = 1, .sources = 1},
};

/// Whether as many of each key are paired as can be: "" or what is wrong.
inline std::string check_pairs_by_key(const Traffic& traffic,
                                      const std::vector<std::uint32_t>& matched_message) {
  std::map<std::uint64_t, std::array<std::uint32_t, 3>> keys;  // messages, receives, pairs
  std::vector<bool> is_taken(traffic.messages.size());
  for (const envelope& each : traffic.messages) ++keys[bits_of(each)][0];
  for (std::uint32_t i = 0; i < traffic.receives.size(); ++i) {
    auto& counts = keys[bits_of(traffic.receives[i])];
    ++counts[1];
    const std::uint32_t message = matched_message[i];
    if (message == kNone) continue;
    if (message >= traffic.messages.size()) return "a message that there is not";
    if (is_taken[message]) return "a message twice";
    is_taken[message] = true;
    if (traffic.messages[message] != traffic.receives[i]) return "a message of another key";
    ++counts[2];
  }
  for (const auto& [key, counts] : keys)
    if (counts[2] != std::min(counts[0], counts[1])) return "not as many as can be";
  return "";
}

}  // namespace polypath::test
