// The words by which ranks tell each other how far they are in schedules.
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

#include "comm/kernels/stream_wait_args.h"

namespace polypath {

/// Streams of a rank that have words.
inline constexpr int kMaxStreams = 64;
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
