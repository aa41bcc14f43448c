// Transfers with buffers and streams of their own, to be measured: as native copies and by
// polypath, every byte verified.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/context.hpp"
#include "driver/resources.hpp"
#include "lab/pairs.hpp"
#include "tune/test_buffer.hpp"

namespace polypath {

/// Not thread-safe; `context` must outlive it. As long as it lives transfers of the context follow
/// exact plans.
class TransferSet {
 public:
  /// `window` times the group `requests`, each transfer with random contents in buffers of its own,
  /// on a stream of its own in the context of its source (of its destination, from host memory).
  /// Prepares the routes.
  TransferSet(Context& context, const std::vector<Request>& requests, int window);
  ~TransferSet();
  TransferSet(const TransferSet&) = delete;
  TransferSet& operator=(const TransferSet&) = delete;

  /// Issue all transfers, and return without waiting. `plan`: of one group, to be followed; null:
  /// the planner's.
  void issue_native();
  void issue_polypath(const PreparedPlan* plan = nullptr);

  /// Runs all by `first` and by `second` in turn; the samples of `first` are in
  /// PairSamples::native. options.ahead is set here. Throws what transfers throw.
  PairSamples compare(const PreparedPlan& first, const PreparedPlan& second, PairOptions options);

  /// The streams of all transfers; the first belongs to the first group's first transfer.
  [[nodiscard]] std::span<const CUstream> streams() const noexcept { return streams_; }
  /// The sum over all transfers.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

  /// Poisons the destinations, issues, waits and compares every byte. Throws Error that names `way`
  /// and says where bytes differ.
  void verify(const char* way, const std::function<void()>& issue);

  /// What GroupTimer takes as `ahead`: small copies that keep the GPU busy while the CPU issues, so
  /// that the GPU's time and the CPU's are measured apart. Empty in virtual time, which does not
  /// jitter, and for a window: its transfers have to start before later ones may share their links.
  [[nodiscard]] std::function<void()> ahead();

 private:
  struct One;

  void poison();
  void wait();

  Context& context_;
  Planner::Exact exact_;  // what is measured is what the plan says
  std::size_t group_;     ///< transfers a group
  std::vector<One> all_;
  std::vector<Transfer> transfers_;
  std::vector<CUstream> streams_;
  std::uint64_t bytes_ = 0;
  bool is_pageable_ = false;  // host memory of some: its copies wait for their stream
  std::vector<std::unique_ptr<TestBuffer>> ahead_;
};

}  // namespace polypath
