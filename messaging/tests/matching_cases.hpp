// Traffic for matchers, and MPI's rule taken literally: what tests compare with.
#pragma once

#include <cstdint>
#include <list>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "polypath/device/detail/match_types.hpp"
#include "polypath/device/detail/mpi_storage.hpp"

namespace polypath::test {

using device::any_source;
using device::any_tag;
using device::envelope;
using device::kNone;

struct Traffic {
  std::vector<envelope> messages;
  std::vector<envelope> receives;
};

/// Two queues, as in MPI: a message looks for the first posted receive that accepts it, and is
/// unexpected else; a receive looks for the first unexpected message, and is posted else.
/// `posts_first(random)` says which side's next one comes.
inline std::vector<std::uint32_t> match_literally(const Traffic& traffic, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::list<std::uint32_t> posted;
  std::list<std::uint32_t> unexpected;
  std::vector<std::uint32_t> matched_message(traffic.receives.size(), kNone);
  std::size_t message = 0;
  std::size_t receive = 0;
  const unsigned of_eight = static_cast<unsigned>(random() % 9);
  while (message < traffic.messages.size() || receive < traffic.receives.size()) {
    const bool posts = message == traffic.messages.size() ||
                       (receive < traffic.receives.size() && random() % 8 < of_eight);
    if (posts) {
      auto match = unexpected.begin();
      while (match != unexpected.end() &&
             !accepts(traffic.receives[receive], traffic.messages[*match]))
        ++match;
      if (match == unexpected.end()) {
        posted.push_back(static_cast<std::uint32_t>(receive));
      } else {
        matched_message[receive] = *match;
        unexpected.erase(match);
      }
      ++receive;
    } else {
      auto match = posted.begin();
      while (match != posted.end() && !accepts(traffic.receives[*match], traffic.messages[message]))
        ++match;
      if (match == posted.end()) {
        unexpected.push_back(static_cast<std::uint32_t>(message));
      } else {
        matched_message[*match] = static_cast<std::uint32_t>(message);
        posted.erase(match);
      }
      ++message;
    }
  }
  return matched_message;
}

/// What traffic is drawn from.
struct TrafficCase {
  const char* name;
  std::uint32_t messages;
  std::uint32_t receives;
  std::uint32_t tags;
  std::uint32_t sources;
  std::uint32_t communicators = 1;
  std::uint32_t any_source_percent = 0;
  std::uint32_t any_tag_percent = 0;
};

inline Traffic draw(const TrafficCase& test_case, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto draw_one = [&] {
    return envelope{static_cast<std::uint32_t>(random() % test_case.tags),
                    static_cast<std::uint16_t>(random() % test_case.sources),
                    static_cast<std::uint16_t>(random() % test_case.communicators)};
  };
  Traffic traffic;
  for (std::uint32_t i = 0; i < test_case.messages; ++i) traffic.messages.push_back(draw_one());
  for (std::uint32_t i = 0; i < test_case.receives; ++i) {
    envelope receive = draw_one();
    if (random() % 100 < test_case.any_source_percent) receive.source = any_source;
    if (random() % 100 < test_case.any_tag_percent) receive.tag = any_tag;
    traffic.receives.push_back(receive);
  }
  return traffic;
}

/// A wildcard for each key but the last, in front of the receives of the keys: each shifts the next
/// key's messages, so that nothing can be known before what comes ahead of it.
inline Traffic chain(std::uint32_t length) {
  Traffic traffic;
  for (std::uint32_t i = 0; i < length; ++i) {
    traffic.messages.push_back({i / 2, static_cast<std::uint16_t>(i % 2), 0});
    traffic.messages.push_back({i / 2 + 1, static_cast<std::uint16_t>(i % 2), 0});
    traffic.receives.push_back(i % 2 == 0
                                   ? envelope{i / 2, any_source, 0}
                                   : envelope{any_tag, static_cast<std::uint16_t>(i / 2 % 2), 0});
    traffic.receives.push_back({i / 2, static_cast<std::uint16_t>(i % 2), 0});
  }
  return traffic;
}

/// Keys whose slots begin at the same place of a table of 2^log2, of a warp or block and seed 0.
inline Traffic one_bucket(std::uint32_t count, unsigned log2) {
  Traffic traffic;
  for (std::uint32_t tag = 0; traffic.messages.size() < count; ++tag) {
    const envelope colliding{tag, 7, 3};
    if (device::detail::slot_hash(0, log2)(bits_of(colliding)) == 5)
      traffic.messages.push_back(colliding);
  }
  traffic.receives.assign(traffic.messages.rbegin(), traffic.messages.rend());
  return traffic;
}

inline constexpr TrafficCase kTraffic[] = {
    {.name = "few",
     .messages = 20,
     .receives = 23,
     .tags = 3,
     .sources = 2,
     .any_source_percent = 20,
     .any_tag_percent = 20},
    {.name = "keys", .messages = 200, .receives = 200, .tags = 16, .sources = 8},
    {.name = "keys_and_any_source",
     .messages = 200,
     .receives = 180,
     .tags = 8,
     .sources = 8,
     .communicators = 2,
     .any_source_percent = 10},
    {.name = "keys_and_any_tag",
     .messages = 150,
     .receives = 200,
     .tags = 8,
     .sources = 8,
     .communicators = 2,
     .any_tag_percent = 10},
    {.name = "some_wildcards",
     .messages = 256,
     .receives = 256,
     .tags = 16,
     .sources = 8,
     .any_source_percent = 5,
     .any_tag_percent = 5},
    {.name = "many_wildcards",
     .messages = 200,
     .receives = 200,
     .tags = 4,
     .sources = 4,
     .communicators = 2,
     .any_source_percent = 40,
     .any_tag_percent = 40},
    {.name = "one_key", .messages = 150, .receives = 150, .tags = 1, .sources = 1},
    {.name = "one_key_and_wildcards",
     .messages = 150,
     .receives = 150,
     .tags = 1,
     .sources = 1,
     .any_source_percent = 20,
     .any_tag_percent = 20},
    {.name = "two_keys_and_wildcards",
     .messages = 150,
     .receives = 140,
     .tags = 2,
     .sources = 1,
     .any_source_percent = 30,
     .any_tag_percent = 30},
    {.name = "all_any_any",
     .messages = 100,
     .receives = 100,
     .tags = 8,
     .sources = 8,
     .any_source_percent = 100,
     .any_tag_percent = 100},
    {.name = "all_any_source",
     .messages = 120,
     .receives = 110,
     .tags = 4,
     .sources = 8,
     .any_source_percent = 100},
    {.name = "few_messages",
     .messages = 10,
     .receives = 200,
     .tags = 2,
     .sources = 2,
     .any_source_percent = 10,
     .any_tag_percent = 10},
    {.name = "few_receives",
     .messages = 200,
     .receives = 10,
     .tags = 2,
     .sources = 2,
     .any_source_percent = 10,
     .any_tag_percent = 10},
    {.name = "no_messages",
     .messages = 0,
     .receives = 40,
     .tags = 2,
     .sources = 2,
     .any_source_percent = 10,
     .any_tag_percent = 10},
    {.name = "no_receives", .messages = 40, .receives = 0, .tags = 2, .sources = 2},
    {.name = "nothing", .messages = 0, .receives = 0, .tags = 1, .sources = 1},
    {.name = "long_chains", .messages = 250, .receives = 250, .tags = 5, .sources = 2},
    {.name = "long_chains_and_wildcards",
     .messages = 256,
     .receives = 240,
     .tags = 3,
     .sources = 2,
     .any_source_percent = 10,
     .any_tag_percent = 10},
    {.name = "long_chains_of_messages",
     .messages = 256,
     .receives = 60,
     .tags = 2,
     .sources = 2,
     .any_source_percent = 10,
     .any_tag_percent = 10},
    {.name = "long_chains_of_receives",
     .messages = 60,
     .receives = 256,
     .tags = 2,
     .sources = 2,
     .any_source_percent = 5,
     .any_tag_percent = 5},
};

}  // namespace polypath::test
