// How many blocks of a GPU each communicator of this process may keep waiting there. A collective
// ends only when all its blocks run at once, on every rank: so the blocks of all communicators
// together must fit.
#pragma once

#include "driver/cuda_driver.hpp"

namespace polypath {

/// A part of a GPU's blocks, given back at the end. Thread-safe.
class BlockReservation {
 public:
  /// Seven eighths of what is left of `capacity` blocks in `context`, `most` at most, one at
  /// least: a program's first communicator is its busiest. Those after it leave a sixteenth of
  /// `capacity` to streams that wait for signals.
  /// With `spared` blocks (half of all at most) that are never granted: half of what is left,
  /// in steps of 16, so that several communicators have some.
  /// Throws Error when nothing is left.
  BlockReservation(CUcontext context, int capacity, int most, int spared = 0);
  ~BlockReservation();
  BlockReservation(const BlockReservation&) = delete;
  BlockReservation& operator=(const BlockReservation&) = delete;

  /// No other reservation had blocks of the GPU before it.
  [[nodiscard]] bool is_first() const noexcept { return is_first_; }
  [[nodiscard]] int blocks() const noexcept { return blocks_; }
  /// Keeps only `blocks`, at least one: the number that all ranks agreed on.
  void keep(int blocks);

 private:
  CUcontext context_;
  int blocks_;
  bool is_first_;
};

}  // namespace polypath
