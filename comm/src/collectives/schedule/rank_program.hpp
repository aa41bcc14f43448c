// What one rank does of a schedule: its own steps, with the signals by which it tells other ranks
// that a step is done, and the signals that it waits for. A plain value; a pure function of the
// schedule, so that senders and receivers of signals agree without communication.
//
// The words of all ranks are laid out alike, 64 bits each:
//   credit of a rank        calls that it has completed: its scratch is free for the next one
//   progress of its stream  the latest call, and how many of the stream's steps in it, that this
//                           rank was told of
// Calls of graphs have words of their own, and count epochs in memory of their GPU, one a launch:
//   begun by a rank         the latest epoch that it has come to: it is done with all calls before
//   ended by a rank         ... that it has completed; no rank goes on before all have
// Only one rank writes a word, its values grow from call to call, and a wait is for a value or what
// is past it: nothing is ever reset.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/plan/collective_schedule.hpp"
#include "comm/kernels/stream_wait_args.h"

namespace polypath {

/// The number of completed steps of a stream.
struct StreamProgress {
  int rank = 0;    ///< whose stream it is; of a signal, its receiver
  int stream = 0;  ///< of that rank; of a signal, the sender's
  std::uint64_t steps = 0;

  friend bool operator==(const StreamProgress&, const StreamProgress&) = default;
};

struct RankStep {
  int index = 0;                        ///< of the step in the schedule
  int stream = 0;                       ///< of the rank's own: steps of one run in order
  std::vector<int> credits;             ///< ranks whose scratch must be free
  std::vector<StreamProgress> awaited;  ///< of other ranks
  std::vector<std::size_t> after;       ///< steps of this rank, on other streams, by place here
  bool is_awaited = false;              ///< by a step of this rank on another stream
  /// In a graph, whose branches may run in any order: steps of this rank on other streams that
  /// others are told of, by place here, and that come before it in the schedule. Where it waits for
  /// others, it waits for these first, lest it keeps the GPU from what another rank needs.
  std::vector<std::size_t> behind;
  std::vector<StreamProgress> signals;  ///< to other ranks, once it is done
  bool is_onward = false;               ///< from a relay: its stream is one of another GPU

  friend bool operator==(const RankStep&, const RankStep&) = default;
};

struct RankProgram {
  int rank = 0;
  int streams = 0;
  std::vector<RankStep> steps;  ///< in the order of issue
  /// By stream: whether it serves what goes over relays. Empty where nothing does.
  std::vector<bool> is_for_relays;
};

/// The part of `rank`. What an earlier step of the same stream has waited for is not waited for
/// again.
RankProgram program_of(const CollectiveSchedule& schedule, int rank);

/// Streams of a rank that have words.
inline constexpr int kMaxStreams = 64;
/// The most streams that a rank of the schedule has.
int streams_of(const CollectiveSchedule& schedule);

inline std::uint64_t credit_word(int rank) { return static_cast<std::uint64_t>(rank); }
/// `ranks`: of the communicator.
inline std::uint64_t progress_word(int ranks, int rank, int stream) {
  return static_cast<std::uint64_t>(ranks + rank * kMaxStreams + stream);
}
inline std::uint64_t word_count(int ranks) { return progress_word(ranks, ranks, 0); }
/// The words of graphs.
inline std::uint64_t graph_word(int ranks, std::uint64_t word) { return word_count(ranks) + word; }
inline std::uint64_t ended_word(int ranks, int rank) {
  return graph_word(ranks, credit_word(rank));
}
inline std::uint64_t begun_word(int ranks, int rank) {
  return 2 * word_count(ranks) + static_cast<std::uint64_t>(rank);
}
inline std::uint64_t epoch_word(int ranks) { return begun_word(ranks, ranks); }
inline std::uint64_t all_word_count(int ranks) { return epoch_word(ranks) + 1; }
/// What the word of a stream is once `steps` of its steps are done in call number `call`.
inline std::uint64_t progress_value(std::uint64_t call, std::uint64_t steps) {
  return call << kEpochShift | steps;
}

}  // namespace polypath
