#include "messaging/host_matching.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <vector>

namespace polypath {

using device::any_source;
using device::any_tag;
using device::envelope;
using device::envelope_error;
using device::kNone;
using device::match_batch;
using device::match_outcome;
using device::match_status;

namespace {

/// Receives by what they ask for: a list a pattern, in their order.
class Posted {
 public:
  explicit Posted(const match_batch& batch)
      : shift_(64U - static_cast<unsigned>(std::countr_zero(
                         std::bit_ceil(std::uint64_t{batch.receive_count} * 2 + 2)))),
        slots_(std::size_t{1} << (64U - shift_)),
        next_(batch.receive_count, kNone) {
    std::vector<std::uint32_t> lasts(slots_.size(), kNone);
    for (std::uint32_t i = 0; i < batch.receive_count; ++i) {
      const envelope& receive = batch.receives[i];
      kinds_[kind_of(receive)] = true;
      const std::size_t at = find(bits_of(receive));
      slots_[at].key = bits_of(receive);
      if (slots_[at].head == kNone)
        slots_[at].head = i;
      else
        next_[lasts[at]] = i;
      lasts[at] = i;
    }
  }

  /// Takes the first that accepts the message; kNone: none does.
  std::uint32_t take(const envelope& message) {
    std::uint32_t best = kNone;
    std::size_t list = 0;
    for (unsigned kind = 0; kind < kinds_.size(); ++kind) {
      if (!kinds_[kind]) continue;
      envelope pattern = message;
      if ((kind & 1) != 0) pattern.source = any_source;
      if ((kind & 2) != 0) pattern.tag = any_tag;
      const std::size_t at = find(bits_of(pattern));
      if (slots_[at].head >= best) continue;
      best = slots_[at].head;
      list = at;
    }
    if (best != kNone) slots_[list].head = next_[best];
    return best;
  }

 private:
  struct Slot {
    std::uint64_t key = kFree;
    std::uint32_t head = kNone;
  };
  static constexpr std::uint64_t kFree = 0x80000000;  // a tag that is out of range

  static unsigned kind_of(const envelope& receive) {
    return (receive.source == any_source ? 1U : 0U) | (receive.tag == any_tag ? 2U : 0U);
  }
  /// The slot of a key, or that where it would be.
  [[nodiscard]] std::size_t find(std::uint64_t key) const {
    std::uint64_t mixed = (key ^ key >> 29) * 0xBF58476D1CE4E5B9U;
    mixed = (mixed ^ mixed >> 32) * 0x94D049BB133111EBU;
    std::size_t at = mixed >> shift_;
    while (slots_[at].key != key && slots_[at].key != kFree) at = (at + 1) & (slots_.size() - 1);
    return at;
  }

  unsigned shift_;
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> next_;
  std::array<bool, 4> kinds_{};
};

match_status status_of(envelope_error error, match_status tag, match_status source) {
  switch (error) {
    case envelope_error::none: return match_status::done;
    case envelope_error::tag: return tag;
    case envelope_error::source: return source;
  }
  return match_status::done;
}

}  // namespace

match_outcome match_mpi_on_host(const match_batch& batch) {
  std::fill_n(batch.matched_message, batch.receive_count, kNone);
  if (batch.matched_receive != nullptr)
    std::fill_n(batch.matched_receive, batch.message_count, kNone);
  for (std::uint32_t i = 0; i < batch.receive_count; ++i)
    if (check_receive(batch.receives[i]) != envelope_error::none)
      return {match_status::receive_tag, i, 0, 0, 0, 0};
  for (std::uint32_t i = 0; i < batch.message_count; ++i) {
    const match_status status = status_of(check_message(batch.messages[i]),
                                          match_status::message_tag, match_status::message_source);
    if (status != match_status::done) return {status, i, 0, 0, 0, 0};
  }
  Posted posted(batch);
  std::uint32_t matches = 0;
  for (std::uint32_t i = 0; i < batch.message_count; ++i) {
    const std::uint32_t receive = posted.take(batch.messages[i]);
    if (receive == kNone) continue;
    batch.matched_message[receive] = i;
    if (batch.matched_receive != nullptr) batch.matched_receive[i] = receive;
    ++matches;
  }
  return {match_status::done,
          0,
          matches,
          batch.message_count - matches,
          batch.receive_count - matches,
          0};
}

}  // namespace polypath
