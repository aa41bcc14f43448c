// The relaxed orders on the host: MPI's, after a look for what they do not allow.
#include <algorithm>
#include <utility>
#include <vector>

#include "messaging/host_matching.hpp"

namespace polypath {
namespace {

using device::envelope;
using device::envelope_error;
using device::kNone;
using device::match_batch;
using device::match_outcome;
using device::match_status;

match_outcome refuse(const match_batch& batch, match_status why, std::uint32_t index) {
  std::fill_n(batch.matched_message, batch.receive_count, kNone);
  if (batch.matched_receive != nullptr)
    std::fill_n(batch.matched_receive, batch.message_count, kNone);
  return {why, index, 0, 0, 0, 0};
}

match_status status_of(const envelope& message) {
  switch (check_message(message)) {
    case envelope_error::none: return match_status::done;
    case envelope_error::tag: return match_status::message_tag;
    case envelope_error::source: return match_status::message_source;
  }
  return match_status::done;
}

/// The first message that must not be matched, else the first receive, as kernels tell it.
template <typename IsForbidden>
match_outcome check(const match_batch& batch, const IsForbidden& is_forbidden) {
  for (std::uint32_t i = 0; i < batch.message_count; ++i) {
    const match_status status = status_of(batch.messages[i]);
    if (status != match_status::done) return refuse(batch, status, i);
  }
  for (std::uint32_t i = 0; i < batch.receive_count; ++i) {
    if (check_receive(batch.receives[i]) != envelope_error::none)
      return refuse(batch, match_status::receive_tag, i);
    if (is_forbidden(batch.receives[i])) return refuse(batch, match_status::wildcard, i);
  }
  return {match_status::done, 0, 0, 0, 0, 0};
}

/// The index of one that is like an earlier one, of those that `counts` is true for; kNone: there
/// is none.
template <typename Counts>
std::uint32_t find_duplicate(const envelope* from, std::uint32_t count, const Counts& counts) {
  std::vector<std::pair<std::uint64_t, std::uint32_t>> keys(count);
  for (std::uint32_t i = 0; i < count; ++i) keys[i] = {bits_of(from[i]), i};
  std::ranges::sort(keys);
  std::uint32_t duplicate = kNone;
  for (std::uint32_t i = 1; i < count; ++i)
    if (keys[i].first == keys[i - 1].first && counts(keys[i].first))
      duplicate = std::min(duplicate, keys[i].second);
  return duplicate;
}

}  // namespace

match_outcome match_partitioned_on_host(const match_batch& batch) {
  const match_outcome outcome =
      check(batch, [](const envelope& receive) { return receive.source == device::any_source; });
  return outcome.status == match_status::done ? match_mpi_on_host(batch) : outcome;
}

match_outcome match_hashed_on_host(const match_batch& batch) {
  const match_outcome outcome =
      check(batch, [](const envelope& receive) { return has_wildcard(receive); });
  return outcome.status == match_status::done ? match_mpi_on_host(batch) : outcome;
}

match_outcome match_hashed_unique_on_host(const match_batch& batch) {
  const match_outcome outcome = match_hashed_on_host(batch);
  if (outcome.status != match_status::done) return outcome;
  const std::uint32_t message =
      find_duplicate(batch.messages, batch.message_count, [](std::uint64_t) { return true; });
  if (message != kNone) return refuse(batch, match_status::message_twice, message);
  std::vector<std::uint64_t> sent(batch.message_count);
  for (std::uint32_t i = 0; i < batch.message_count; ++i) sent[i] = bits_of(batch.messages[i]);
  std::ranges::sort(sent);
  // Kernels look for each receive's message alone.
  const std::uint32_t receive =
      find_duplicate(batch.receives, batch.receive_count,
                     [&](std::uint64_t key) { return std::ranges::binary_search(sent, key); });
  if (receive != kNone) return refuse(batch, match_status::receive_twice, receive);
  return outcome;
}

}  // namespace polypath
