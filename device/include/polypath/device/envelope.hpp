// What messages are matched by: tag, source and communicator. C++17: shared by host and device.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define POLYPATH_HOST_DEVICE __host__ __device__
#else
#define POLYPATH_HOST_DEVICE
#endif

namespace polypath::device {

/// For receives: any tag, or any source.
inline constexpr std::uint32_t any_tag = 0xFFFFFFFF;
inline constexpr std::uint16_t any_source = 0xFFFF;

/// The largest tag and source that a message may have.
inline constexpr std::uint32_t kMaxTag = 0x7FFFFFFF;
inline constexpr std::uint16_t kMaxSource = 0xFFFE;

/// The index of no message, and of no receive.
inline constexpr std::uint32_t kNone = 0xFFFFFFFF;

/// The envelope of a message, or the pattern of a receive: one word of 64 bits.
struct alignas(8) envelope {
  std::uint32_t tag;
  std::uint16_t source;
  std::uint16_t communicator;  ///< any value; there is no wildcard

  friend POLYPATH_HOST_DEVICE constexpr bool operator==(const envelope& first,
                                                        const envelope& other) {
    return first.tag == other.tag && first.source == other.source &&
           first.communicator == other.communicator;
  }
  friend POLYPATH_HOST_DEVICE constexpr bool operator!=(const envelope& first,
                                                        const envelope& other) {
    return !(first == other);
  }
};
static_assert(sizeof(envelope) == 8);

/// The envelope as one number, as it lies in memory.
[[nodiscard]] POLYPATH_HOST_DEVICE constexpr std::uint64_t bits_of(const envelope& header) {
  return header.tag | std::uint64_t{header.source} << 32 | std::uint64_t{header.communicator} << 48;
}
[[nodiscard]] POLYPATH_HOST_DEVICE constexpr envelope envelope_of(std::uint64_t bits) {
  return {static_cast<std::uint32_t>(bits), static_cast<std::uint16_t>(bits >> 32),
          static_cast<std::uint16_t>(bits >> 48)};
}

namespace detail {
/// The bits of no envelope that may be matched: its tag is out of range.
inline constexpr std::uint64_t kNoKey = 0x80000000;
}  // namespace detail

/// True when a receive with that pattern may take that message. Both are in range.
[[nodiscard]] POLYPATH_HOST_DEVICE constexpr bool accepts(const envelope& receive,
                                                          const envelope& message) {
  return receive.communicator == message.communicator &&
         (receive.tag == any_tag || receive.tag == message.tag) &&
         (receive.source == any_source || receive.source == message.source);
}

[[nodiscard]] POLYPATH_HOST_DEVICE constexpr bool has_wildcard(const envelope& receive) {
  return receive.tag == any_tag || receive.source == any_source;
}

/// Kinds of receives, and patterns of messages: bit 0: any source, bit 1: any tag.
[[nodiscard]] POLYPATH_HOST_DEVICE constexpr unsigned kind_of(const envelope& receive) {
  return (receive.source == any_source ? 1U : 0U) | (receive.tag == any_tag ? 2U : 0U);
}
/// The bits of the receive of that kind that accepts this message.
[[nodiscard]] POLYPATH_HOST_DEVICE constexpr std::uint64_t pattern_of(const envelope& message,
                                                                      unsigned kind) {
  return bits_of({(kind & 2) != 0 ? any_tag : message.tag,
                  (kind & 1) != 0 ? any_source : message.source, message.communicator});
}

/// What is out of range in an envelope.
enum class envelope_error : std::uint32_t { none, tag, source };

/// Checks a message: tag 0 to 2^31 - 1, source 0 to 65534; no wildcards.
[[nodiscard]] POLYPATH_HOST_DEVICE constexpr envelope_error check_message(const envelope& header) {
  return header.tag > kMaxTag         ? envelope_error::tag
         : header.source > kMaxSource ? envelope_error::source
                                      : envelope_error::none;
}
/// Checks a receive: as a message, or a wildcard.
[[nodiscard]] POLYPATH_HOST_DEVICE constexpr envelope_error check_receive(const envelope& header) {
  return header.tag > kMaxTag && header.tag != any_tag ? envelope_error::tag : envelope_error::none;
}

/// The first slot of a key (the bits of an envelope) in a hash table; of one that tries several, of
/// the `level`-th try. A sender that does not know the seed cannot make keys that meet.
[[nodiscard]] POLYPATH_HOST_DEVICE constexpr std::uint32_t first_slot_of(std::uint64_t key,
                                                                         std::uint64_t seed,
                                                                         unsigned level,
                                                                         unsigned slots_log2) {
  std::uint64_t mixed = key ^ (seed + level * 0xD1B54A32D192ED03U);
  mixed = (mixed ^ mixed >> 32) * 0xBF58476D1CE4E5B9U;
  mixed = (mixed ^ mixed >> 29) * 0x94D049BB133111EBU;
  return static_cast<std::uint32_t>(mixed >> (64 - slots_log2));
}

}  // namespace polypath::device
