// What a matcher is given and what it answers. C++17: shared by host and device.
//
// Matching is a pure function: each message, in their order, takes the first receive in theirs that
// accepts it and that no earlier message has taken. It does not depend on how messages and receives
// came in between each other, nor on how they are cut into batches: what is left over of both comes
// before what is new.
#pragma once

#include <cstdint>

#include "polypath/device/envelope.hpp"

namespace polypath::device {

/// In which order a matcher pairs messages and receives: matcher<mpi>. A new one has a
/// specialisation of matcher (matcher.cuh), a value of polypath_match_order (messaging/matching.h),
/// and a line in match_kernels.cpp and host_matching.cpp of messaging/src/messaging; nothing else
/// knows orders.
struct mpi {};          ///< messages and receives in their orders; any source, any tag
struct partitioned {};  ///< the same without any source
struct hashed {};       ///< no order, no wildcards
/// As hashed, and faster. The caller guarantees that no two messages and no two receives are alike.
struct hashed_unique {};

enum class match_status : std::uint32_t {
  done,
  full,            ///< with what was left over there is more than the matcher has room for
  message_tag,     ///< a message's tag is above kMaxTag
  message_source,  ///< a message's source is above kMaxSource
  receive_tag,     ///< a receive's tag is above kMaxTag, and not any_tag
  wildcard,        ///< a receive has a wildcard that this order does not know
  message_twice,   ///< of hashed_unique: two messages are alike
  receive_twice    ///< of hashed_unique: two receives are alike
};

/// Arrays in memory of the GPU, or on the host those of the host; none overlap.
struct match_batch {
  const envelope* messages;
  std::uint32_t message_count;
  std::uint32_t receive_count;
  const envelope* receives;
  std::uint32_t* matched_message;  ///< kNone: it is left over
  std::uint32_t* matched_receive;  ///< may be null
  /// Seed of the hashes of matching in MPI's order. Use a secret number if a sender might choose
  /// keys that meet in one slot of the table.
  std::uint64_t seed = 0;
};

/// What one batch came to. Unless it is done nothing was matched, nothing is changed, and all
/// results are kNone.
struct match_outcome {
  match_status status;
  std::uint32_t index;               ///< one of those that the status is about; else 0
  std::uint32_t matches;             ///< pairs
  std::uint32_t unmatched_messages;  ///< of those given and those left over before
  std::uint32_t unmatched_receives;
  std::uint32_t reserved;
};

/// Initial value of a word in which a batch notes the first of its messages or receives that must
/// not be matched.
inline constexpr std::uint64_t kNothingBad = ~std::uint64_t{0};

/// A pair of a matcher that carries over. Numbers count from 0 since its creation.
struct match_pair {
  std::uint64_t receive;
  std::uint64_t message;
};

}  // namespace polypath::device
