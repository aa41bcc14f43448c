// When the parts of one transfer ended: events with timing on its caller's stream, where the joins
// are. All of them belong to one context, as cuEventElapsedTime wants it, and none lies on a staged
// route. No stream waits for them.
//
//   begin      before the first copy; the fork, where the transfer has one of its own
//   direct     after the direct copies, before the first join
//   route r    after the join with route r
//   all        of a graph: after its launch
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "exec/event_pool.hpp"

namespace polypath {

/// What was read of a sample.
struct SampleTimes {
  struct Late {
    std::size_t route = 0;  ///< of the transfer's schedule
    double us = 0;          ///< how much later than all before it in the order of the joins
  };
  double direct_us = 0;      ///< from begin to the end of the direct copies
  double total_us = 0;       ///< from begin to the last event
  std::vector<Late> routes;  ///< empty: of a graph
};

/// Written by the executor's thread, then read by one at a time.
class TransferSample {
 public:
  /// `timed`: a pool of events with timing, which must outlive it and the transfer; `gpu`: the
  /// caller's.
  TransferSample(EventPool& timed, int gpu) : timed_(timed), gpu_(gpu) {}

  /// The pool of its events.
  [[nodiscard]] EventPool& events() const noexcept { return timed_; }
  /// It begins with an event of that pool which was recorded.
  void begin(std::shared_ptr<PooledEvent> fork) noexcept;

  // Each records an event on the caller's stream, in the current context, which must be its own.
  // What fails makes the sample void, and nothing else. A second begin replaces the first.
  void begin(const CudaDriver& driver, CUstream stream) noexcept { mark(driver, stream, kBegin); }
  void direct(const CudaDriver& driver, CUstream stream) noexcept { mark(driver, stream, kDirect); }
  void route(const CudaDriver& driver, CUstream stream, std::size_t route) noexcept {
    mark(driver, stream, static_cast<int>(route));
  }
  void all(const CudaDriver& driver, CUstream stream) noexcept { mark(driver, stream, kAll); }
  /// Whether it ends with all of a graph.
  [[nodiscard]] bool is_of_graph() const noexcept {
    return !marks_.empty() && marks_.back().what == kAll;
  }

  enum class State : std::uint8_t { pending, read, failed };
  /// Asks the driver, which does not wait.
  State read(const CudaDriver& driver, SampleTimes& times) const;

 private:
  static constexpr int kBegin = -1;
  static constexpr int kDirect = -2;
  static constexpr int kAll = -3;
  struct Mark {
    int what;
    std::shared_ptr<PooledEvent> event;
  };
  void mark(const CudaDriver& driver, CUstream stream, int what) noexcept;

  EventPool& timed_;
  int gpu_;
  bool is_failed_ = false;
  std::vector<Mark> marks_;
};

}  // namespace polypath
