// Spreads of a communicator: the same bytes of host memory, or of one rank, to all ranks. A row of
// copies and collectives, piece by piece:
//
//   shared   each rank copies its slice of a piece over its own host link, on the feed's stream;
//            then the ranks all-gather the piece in place, on the caller's. The copies run ahead,
//            so that both overlap, and each host link carries its slice once.
//   root     the root copies pieces to its GPU over all paths (engine), and broadcasts each.
//
// What is small goes as a copy of all of it on each rank, by the same rule on all ranks: it waits
// for no other rank then.
#pragma once

#include <cstdint>

#include "collectives/collectives.hpp"
#include "core/copy_engine.hpp"
#include "driver/resources.hpp"
#include "plan/spread_plan.hpp"

namespace polypath {

/// One call of one rank.
struct SpreadCall {
  CUdeviceptr src = 0;   ///< unused on ranks that are not the root
  CUdeviceptr recv = 0;  ///< memory of this rank's GPU
  std::uint64_t bytes = 0;
  int root = 0;  ///< kSharedSource: all ranks have the same bytes at `src`
};
inline constexpr int kSharedSource = -1;

/// How calls went, since the beginning.
struct CommSpreadCounts {
  std::uint64_t calls = 0;
  std::uint64_t native = 0;  ///< each rank copied all of it
  std::uint64_t pieces = 0;  ///< of the others
};

/// One a rank; calls as Collectives'.
class CommSpread {
 public:
  /// Both must outlive it. Throws DriverError.
  CommSpread(Collectives& collectives, CopyEngine& engine);

  /// As Collectives::run: what one rank alone cannot do aborts the communicator. In capture the
  /// same row is recorded, all of it on `stream`.
  void run(const SpreadCall& call, CUstream stream);

  [[nodiscard]] const CommSpreadCounts& counts() const noexcept { return counts_; }
  /// Bytes of a piece, the same on all ranks; 0: each rank copies all of it.
  [[nodiscard]] std::uint64_t piece_bytes(const SpreadCall& call) const;

 private:
  /// The stream of the copies, and the caller's, which waits for them.
  struct Streams {
    CUstream feed = nullptr;
    CUstream caller = nullptr;
    [[nodiscard]] bool is_one() const noexcept { return feed == caller; }
  };
  void issue(const SpreadCall& call, CUstream stream);
  void issue_shared(const SpreadCall& call, std::uint64_t piece, const Streams& streams);
  void issue_from_root(const SpreadCall& call, std::uint64_t piece, const Streams& streams);
  void copy(CUdeviceptr to, CUdeviceptr from, std::uint64_t bytes, CUstream stream);
  /// The caller's stream waits for the copies so far.
  void pass_on(const Streams& streams);
  void collect(const SpreadCall& call, CollectiveOp op, CUdeviceptr send, CUdeviceptr recv,
               std::uint64_t bytes, const Streams& streams);
  void require_buffers(const SpreadCall& call);
  [[nodiscard]] std::uint32_t hash_of(const SpreadCall& call) const;
  [[nodiscard]] Communicator& comm() const noexcept { return collectives_.communicator(); }

  Collectives& collectives_;
  CopyEngine& engine_;
  const SpreadTrees trees_;  // from host memory to all ranks' GPUs, the same on all ranks
  Stream feed_;
  Event fork_;
  Event fed_;
  bool is_pageable_ = false;  // the source of the call that is being issued
  CommSpreadCounts counts_;
};

}  // namespace polypath
