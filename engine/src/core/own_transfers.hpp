// Which transfers of this process run at the same time, on streams of their own. Calls say nothing
// of each other, so each is planned before the next one is known. But programs repeat: what ran
// next to a pair's last transfers is expected next to the one that comes.
//
// A transfer counts for as long as its links take at least, at the rates of their data sheets. Were
// it longer than it is, transfers that follow each other would be taken for concurrent, and lose
// what they gain. Concurrent ones begin together, or overlap for most of their time: they are found
// all the same.
//
// Pure: times are given, nothing here asks a driver or a clock.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "plan/plan.hpp"
#include "topology/node.hpp"

namespace polypath {

/// The latest transfers, with their shortest times. Thread-safe.
class OwnTransfers {
 public:
  /// Transfers that are remembered: a few calls on a few streams each.
  static constexpr std::size_t kKept = 64;
  /// A pair is expected next to a transfer as long as it ran next to one of so many of its last.
  static constexpr int kMaxEarlier = 2;
  /// Of a transfer's time: what runs next to it for less does not count.
  static constexpr double kMinOverlap = 0.25;
  /// A time ago beyond which nothing is remembered.
  static constexpr std::uint64_t kForgottenNs = 1'000'000'000;

  /// `node` must outlive it.
  explicit OwnTransfers(const Node& node) : node_(node) {}

  struct Begun {
    std::uint64_t first = 0;    ///< number of the first transfer, for planned()
    std::uint64_t lead_ns = 0;  ///< what is queued on the streams takes so long at least
  };
  /// Transfers that are planned together, each after all before it on its stream (`streams`: one a
  /// request; any numbers that are the streams' own). Until planned() they count as native copies.
  /// Adds to `concurrent` the pairs of transfers on other streams that run next to them, or ran
  /// next to their pairs' last ones, with 0 bytes; each pair may be there more than once. Throws
  /// std::bad_alloc.
  Begun begin(std::span<const Request> requests, std::span<const std::uintptr_t> streams,
              std::uint64_t now_ns, std::vector<Request>& concurrent);
  /// The transfers that begin() numbered from `first` on are issued as `plan` says.
  void planned(std::uint64_t first, const Plan& plan);

 private:
  struct Interval {
    Request request;
    std::uintptr_t stream = 0;
    std::uint64_t begin_ns = 0;
    std::uint64_t end_ns = 0;

    [[nodiscard]] bool is_of(const Request& other) const noexcept {
      return request.src == other.src && request.dst == other.dst;
    }
  };

  /// How long the link takes at least; 0: there is none.
  [[nodiscard]] std::uint64_t least_ns(std::optional<int> link, std::uint64_t bytes) const;
  [[nodiscard]] Interval interval_of(const Request& request, std::uintptr_t stream,
                                     std::uint64_t now_ns) const;
  /// Adds the pairs that ran next to `one` for long enough.
  void add_concurrent(const Interval& one, std::vector<Request>& concurrent) const;
  Interval& at(std::uint64_t number) noexcept { return kept_[number % kKept]; }

  const Node& node_;
  std::mutex mutex_;
  std::array<Interval, kKept> kept_{};
  std::uint64_t begun_ = 0;  ///< how many transfers have a number
};

}  // namespace polypath
