// Which transfers of this process run at the same time, on streams of their own. Calls say nothing
// of each other, so each is planned before the next one is known. But programs repeat: what ran
// next to a pair's last transfers is expected next to the one that comes.
//
// A transfer counts for as long as its links take at least, at the rates of their data sheets. If
// it counted for longer, transfers that follow each other would seem concurrent, and lose what they
// gain. Concurrent ones begin together, or overlap for most of their time: they are seen
// all the same. A transfer that is native because of its neighbours counts as if alone where its
// stream was idle for long before: else neighbours that need not meet would keep each other native.
//
// Pure: times are given, nothing here asks a driver or a clock.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "plan/plan.hpp"
#include "topology/node.hpp"

namespace polypath {

/// The latest transfers, with their shortest times. Thread-safe.
class OwnTransfers {
 public:
  /// Rows of transfers that are remembered: those of one pair that follow each other on a stream.
  static constexpr std::size_t kMaxRows = 64;
  /// A pair is expected next to a transfer if it ran next to one of the last two rows of that pair.
  static constexpr int kMaxEarlier = 2;
  /// What runs next to a transfer for less than this part of its time does not count.
  static constexpr double kMinOverlap = 0.25;
  /// What ended earlier than this before now is forgotten.
  static constexpr std::uint64_t kForgottenNs = 1'000'000'000;
  /// No queue of a stream is longer: the clock jumped.
  static constexpr std::uint64_t kLongestQueueNs = 60'000'000'000;

  struct Start {
    std::vector<std::uint64_t> rows;  ///< of each transfer, for the calls below
    std::uint64_t lead_ns = 0;        ///< the least time of what is queued on the streams
    /// The pairs of memories that run at the same time, with 0 bytes; each may be there more than
    /// once. Those that this thread issues, too, are in `by_thread` as well.
    std::vector<Request> concurrent;
    std::vector<Request> by_thread;
  };

  /// `node` must outlive it.
  explicit OwnTransfers(const Node& node) : node_(node) {}

  /// Transfers that are planned together, each after all before it on its stream (`streams`: one a
  /// request; any numbers that are the streams' own). `alone`: their plan if nothing else ran;
  /// null: native copies. Throws std::bad_alloc.
  Start begin(std::span<const Request> requests, std::span<const std::uintptr_t> streams,
              std::uint64_t now_ns, const Plan* alone = nullptr);
  /// The transfers from number `first` on are issued as `plan` says.
  void set_plan(const Start& start, std::size_t first, const Plan& plan);
  /// All are native copies; `is_shared`: because of what runs at the same time.
  void set_native(const Start& start, bool is_shared);

 private:
  struct Row {
    Request request;  ///< of the last transfer
    std::uintptr_t stream = 0;
    std::thread::id thread;
    std::uint64_t begin_ns = 0;
    std::uint64_t last_begin_ns = 0;  ///< of the last transfer
    std::uint64_t end_ns = 0;         ///< until when it counts
    std::uint64_t busy_until_ns = 0;  ///< until when the stream is busy at least
    std::uint64_t alone_ns = 0;       ///< of the last transfer
    bool has_pause = true;  ///< the stream was idle before it for longer than a native copy takes

    [[nodiscard]] bool has_pair_of(const Request& other) const noexcept {
      return request.src == other.src && request.dst == other.dst;
    }
  };

  /// How long the link takes at least; 0: there is none.
  [[nodiscard]] std::uint64_t min_ns(std::optional<int> link, std::uint64_t bytes) const;
  [[nodiscard]] std::uint64_t min_native_ns(const Request& request) const;
  /// How long the plan's transfer takes at least.
  [[nodiscard]] std::uint64_t min_ns(const TransferPlan& plan) const;
  /// A row of one transfer, which is not among the others yet.
  [[nodiscard]] Row row_of(const Request& request, std::uintptr_t stream, std::uint64_t now_ns,
                           std::uint64_t alone_ns) const;
  struct Concurrent {
    std::uintptr_t stream = 0;
    Request pair;
    std::uint64_t ns = 0;  ///< for which both ran
    bool is_by_thread = false;
  };
  /// Adds to `neighbours`, for each stream that is not in it, the pair that it sent between next to
  /// `row`, if all streams together did so for long enough, also for a transfer that takes
  /// `alone_ns`.
  void add_concurrent(const Row& row, std::uint64_t alone_ns,
                      std::vector<Concurrent>& neighbours) const;
  /// Returns the row's number.
  std::uint64_t add(const Row& row);
  Row& at(std::uint64_t number) noexcept { return rows_[number % kMaxRows]; }
  [[nodiscard]] bool is_kept(std::uint64_t number) const noexcept {
    return number < begun_ && begun_ - number <= kMaxRows;
  }

  const Node& node_;
  std::mutex mutex_;
  std::array<Row, kMaxRows> rows_{};
  std::uint64_t begun_ = 0;  ///< how many rows have a number
};

}  // namespace polypath
