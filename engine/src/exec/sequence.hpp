// Sequences: transfers that follow each other on one caller's stream with nothing but event records
// between them. The staged legs of a later one need not wait for its own fork, and so not for the
// joins of those before it: the fork of the first of the sequence will do, where nothing that they
// touch is touched by an earlier one. So the pipeline of a staged route does not run dry between
// two messages. Joins and direct copies stay on the caller's stream, in its order.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "exec/transfer_state.hpp"
#include "plan/plan.hpp"

namespace polypath {

struct Channel;

/// What one route of a transfer reads and writes, in the caller's addresses.
struct RouteAccess {
  const Channel* first = nullptr;  ///< null of a direct route: it is on the caller's stream
  const Channel* second = nullptr;
  CUdeviceptr dst = 0;
  CUdeviceptr src = 0;
  std::uint64_t bytes = 0;
};

/// Thread-safe; no call of the driver.
class Sequences {
 public:
  /// A ticket for one more transfer of the sequence on the caller's stream; null if there is none.
  std::shared_ptr<TransferState> follow(const CallerStream& caller);
  /// Whether a transfer that uses this may be one of the sequence.
  bool allows(const CallerStream& caller, const std::vector<RouteAccess>& uses);

  /// Whether the caller's sequence ends with a transfer between the same two memories, whose
  /// pipelines one more can take over.
  [[nodiscard]] bool last_was(const CallerStream& caller, const Request& pair);

  /// The caller's stream was given a whole transfer, which begins a sequence or, with `follows`, is
  /// one more of its own.
  void add(const std::shared_ptr<TransferState>& ticket, std::vector<RouteAccess> uses,
           bool follows, const Request& request);
  /// The next transfer on the caller's stream needs a fork of its own.
  void end(const CallerStream& caller);
  /// As above, for all streams with that handle. Cheap where there are no sequences.
  void end(CUstream stream);

 private:
  struct Sequence {
    std::shared_ptr<TransferState> first;
    Request last;
    std::vector<RouteAccess> uses;  // of all its transfers
    std::size_t transfers = 0;
  };
  std::list<Sequence>::iterator find(const CallerStream& caller);  // with mutex_ held

  std::mutex mutex_;
  std::atomic<bool> any_{false};
  std::list<Sequence> sequences_;  // used last first
};

}  // namespace polypath
