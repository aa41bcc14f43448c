// The steps of a collective that runs by copies and small reduction kernels: what moves or is
// reduced, between which buffers, after which other steps. A plain value without addresses; the
// executor of each rank runs the steps of its own (`rank`), and waits for those of others by
// signals.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/plan/request.hpp"

namespace polypath {

enum class CollectiveBuffer : std::uint8_t {
  input,    ///< the caller's send buffer of a rank; read only
  output,   ///< the caller's receive buffer of a rank, written by that rank alone; `input` when the
            ///< call is in place
  scratch,  ///< symmetric memory of a rank
  host,     ///< pinned host memory; `rank` is then an index into Node::hosts
};

struct CollectivePlace {
  CollectiveBuffer buffer = CollectiveBuffer::input;
  int rank = 0;
  std::uint64_t offset = 0;  ///< bytes

  friend bool operator==(const CollectivePlace&, const CollectivePlace&) = default;
};

enum class CollectiveStepKind : std::uint8_t {
  copy,    ///< `bytes` from operands[0] to `to`, over `link`
  reduce,  ///< to = (operands[0] op operands[1]) op ..., element by element, in memory of `rank`
};

struct CollectiveStep {
  CollectiveStepKind kind = CollectiveStepKind::copy;
  int rank = 0;   ///< the rank that issues it: of a copy the rank that holds the source
  int link = -1;  ///< copy: index into Node::links; -1: within one memory
  std::vector<CollectivePlace> operands;
  CollectivePlace to;
  std::uint64_t elements = 0;
  /// Reduce: which operands are partial sums, of the accumulator's type (request.hpp). Copy:
  /// whether the elements that it moves are.
  std::vector<bool> partial;
  bool to_partial = false;  ///< the result stays a partial sum; otherwise avg divides it, and it is
                            ///< rounded to the type
  int stage = 0;            ///< index into CollectiveSchedule::stages
  int queue = 0;           ///< steps of one queue run in the order of the list (a stream of `rank`)
  std::vector<int> after;  ///< steps, listed before, that must have completed; those before it in
                           ///< its queue are not named

  friend bool operator==(const CollectiveStep&, const CollectiveStep&) = default;
};

/// A step touches the buffers and the scratch of its own rank, and writes to the scratch of others.
/// Before a rank's first step its input is ready and its output may be written; before the first
/// that writes to another rank's scratch, that rank is done with it as well. Slots of scratch are
/// used in turn: what overwrites one names the readers in `after`.
struct CollectiveSchedule {
  CollectiveRequest request;
  std::vector<std::string> stages;
  std::vector<CollectiveStep> steps;  ///< in the order of issue
  int queues = 0;
  /// Whether a queue's next step waits for other ranks while the one before it still runs: where
  /// small copies must keep links busy. It costs an event a step.
  bool waits_aside = false;
  std::uint64_t scratch_bytes = 0;  ///< of each rank
  std::uint64_t host_bytes = 0;     ///< of each host memory
};

/// Bytes that a copy moves, or that each operand of a reduction holds.
std::uint64_t bytes_of(const CollectiveSchedule& schedule, const CollectiveStep& step,
                       bool partial);

/// A line a step, for people and tests.
std::string to_string(const CollectiveSchedule& schedule);

}  // namespace polypath
