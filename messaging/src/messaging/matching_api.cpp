// The C API of matching (messaging/matching.h), a thin shell around Matching.
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

#include "comm/comm_handle.hpp"
#include "core/c_boundary.hpp"
#include "messaging/matching.hpp"

using namespace polypath;

struct polypath_matcher {
  polypath_matcher(Communicator& communicator, const polypath_matcher_options& options)
      : matching(communicator, order_of_matching(options.order), options.capacity,
                 options.launch_per_phase != 0) {}

  Matching matching;
};

namespace {

static_assert(sizeof(polypath_envelope) == sizeof(device::envelope));
static_assert(offsetof(polypath_envelope, communicator) ==
              offsetof(device::envelope, communicator));
static_assert(sizeof(polypath_match_result) == sizeof(device::match_outcome));
static_assert(sizeof(polypath_match_pair) == sizeof(device::match_pair));
static_assert(POLYPATH_MATCH_WILDCARD == static_cast<int>(device::match_status::wildcard));
static_assert(POLYPATH_MATCH_DUPLICATE_RECEIVE ==
              static_cast<int>(device::match_status::receive_twice));
static_assert(POLYPATH_MATCH_BATCHED_MAX == kMaxPerQueue);
static_assert(POLYPATH_ANY_TAG == device::any_tag && POLYPATH_ANY_SOURCE == device::any_source);

Matching& matching_of(polypath_matcher* matcher) {
  require(matcher != nullptr, "matcher is null");
  return matcher->matching;
}

const device::envelope* envelopes(const polypath_envelope* from) {
  return reinterpret_cast<const device::envelope*>(from);
}
device::match_outcome* outcome_at(polypath_match_result* to) {
  return reinterpret_cast<device::match_outcome*>(to);
}

void require_aligned_to_words(const void* memory, const char* name) {
  if (reinterpret_cast<std::uintptr_t>(memory) % 8 != 0)
    throw InvalidArgument(std::string(name) + " is not aligned to 8 bytes");
}

/// Throws InvalidArgument for errors of the arrays that the host can see.
device::match_batch batch_of(const polypath_envelope* messages, std::size_t message_count,
                             const polypath_envelope* receives, std::size_t receive_count,
                             std::uint32_t* matched_message, std::size_t most) {
  require(messages != nullptr || message_count == 0, "messages is null");
  require(receives != nullptr || receive_count == 0, "receives is null");
  require_aligned_to_words(messages, "messages");
  require_aligned_to_words(receives, "receives");
  if (message_count > most || receive_count > most)
    throw InvalidArgument(std::string(message_count > most ? "message_count" : "receive_count") +
                          " is more than " + std::to_string(most) + ", the most of a batch");
  return {envelopes(messages),
          static_cast<std::uint32_t>(message_count),
          static_cast<std::uint32_t>(receive_count),
          envelopes(receives),
          matched_message,
          nullptr};
}

}  // namespace

polypath_status polypath_matcher_create(polypath_comm* comm,
                                        const polypath_matcher_options* options,
                                        polypath_matcher** matcher) {
  return guarded([&] {
    require(matcher != nullptr, "matcher is null");
    *matcher = nullptr;
    require(options != nullptr, "options is null");
    require(options->launch_per_phase <= 1, "options->launch_per_phase is not 0 or 1");
    for (const std::uint64_t reserved : options->reserved)
      require(reserved == 0, "options->reserved is not 0");
    *matcher = new polypath_matcher(local_of(comm), *options);
  });
}

polypath_status polypath_matcher_destroy(polypath_matcher* matcher) {
  return guarded([&] { delete matcher; });
}

polypath_status polypath_match(polypath_matcher* matcher, const polypath_envelope* messages,
                               size_t message_count, const polypath_envelope* receives,
                               size_t receive_count, uint32_t* matched_message,
                               polypath_match_result* outcome, void* stream) {
  return guarded([&] {
    Matching& matching = matching_of(matcher);
    const device::match_batch batch = batch_of(messages, message_count, receives, receive_count,
                                               matched_message, matching.capacity());
    require(matched_message != nullptr || receive_count == 0, "matched_message is null");
    require_aligned_to_words(outcome, "outcome");
    matching.match(batch, outcome_at(outcome), static_cast<CUstream>(stream));
  });
}

polypath_status polypath_match_batched(polypath_matcher* matcher, size_t queues,
                                       const polypath_envelope* messages,
                                       const uint32_t* message_begins,
                                       const polypath_envelope* receives,
                                       const uint32_t* receive_begins, uint32_t* matched_message,
                                       polypath_match_result* outcomes, void* stream) {
  return guarded([&] {
    Matching& matching = matching_of(matcher);
    require(queues <= UINT32_MAX, "queues is more than 2^32 - 1");
    require(queues == 0 || (message_begins != nullptr && receive_begins != nullptr),
            "message_begins or receive_begins is null");
    require_aligned_to_words(outcomes, "outcomes");
    const device::match_batch arrays =
        batch_of(messages, 0, receives, 0, matched_message, kMaxPerQueue);
    matching.match_many({static_cast<std::uint32_t>(queues), message_begins, receive_begins},
                        arrays, outcome_at(outcomes), static_cast<CUstream>(stream));
  });
}

polypath_status polypath_match_incremental(polypath_matcher* matcher,
                                           const polypath_envelope* messages, size_t message_count,
                                           const polypath_envelope* receives, size_t receive_count,
                                           polypath_match_pair* pairs,
                                           polypath_match_result* outcome, void* stream) {
  return guarded([&] {
    Matching& matching = matching_of(matcher);
    const device::match_batch batch =
        batch_of(messages, message_count, receives, receive_count, nullptr, matching.capacity());
    require(pairs != nullptr, "pairs is null");
    require_aligned_to_words(pairs, "pairs");
    require_aligned_to_words(outcome, "outcome");
    matching.match_next(batch, reinterpret_cast<device::match_pair*>(pairs), outcome_at(outcome),
                        static_cast<CUstream>(stream));
  });
}

polypath_status polypath_matcher_reset(polypath_matcher* matcher, void* stream) {
  return guarded([&] { matching_of(matcher).reset(static_cast<CUstream>(stream)); });
}

polypath_status polypath_match_host(int order, const polypath_envelope* messages,
                                    size_t message_count, const polypath_envelope* receives,
                                    size_t receive_count, uint32_t* matched_message,
                                    polypath_match_result* outcome) {
  return guarded([&] {
    const device::match_batch batch = batch_of(messages, message_count, receives, receive_count,
                                               matched_message, POLYPATH_NO_MATCH - 1U);
    require(matched_message != nullptr || receive_count == 0, "matched_message is null");
    const device::match_outcome result = order_of_matching(order).on_host(batch);
    if (outcome != nullptr) *outcome_at(outcome) = result;
  });
}

polypath_status polypath_matcher_report(polypath_matcher* matcher, char** json) {
  return guarded([&] {
    Matching& matching = matching_of(matcher);
    const MatchState state = matching.state();
    const MatcherCounts& counts = matching.counts();
    give({{"batches", counts.batches},
          {"queues", counts.queues},
          {"messages", counts.messages},
          {"receives", counts.receives},
          {"matches", state.matches},
          {"refused", state.refused},
          {"unmatched_messages", state.unmatched_messages},
          {"unmatched_receives", state.unmatched_receives},
          {"launches", counts.launches}},
         json);
  });
}
