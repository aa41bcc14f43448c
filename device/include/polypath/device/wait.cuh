// How device code waits for another rank, and what it does when that rank does not come.
#pragma once

#include <cstdint>

#include "polypath/device/detail/mutants.hpp"
#include "polypath/device/group.cuh"
#include "polypath/device/platform.cuh"
#include "polypath/device/scope.cuh"
#include "polypath/device/wait_context.hpp"

namespace polypath::device {

/// What a wait that timed out had waited for.
struct wait_target {
  std::uint32_t rank;        ///< kNobody: any sender of the signal
  std::uint64_t expected;    ///< the value that did not come,
  std::uint64_t seen;        ///< and what was there last
  std::uint64_t offset = 0;  ///< of a signal, and the bytes of its memory: as wait_error
  std::uint64_t bytes = 0;
};

/// A kernel sees an abort within this time.
inline constexpr std::uint64_t kMaxPollIntervalNs = 16'000'000;

/// Polls of host memory, by all that wait together, take at most 1/kHostPollFraction of the time.
/// A long wait ends later by about that part, since it rests between its polls.
inline constexpr std::uint64_t kHostPollFraction = 16;
inline constexpr std::uint64_t kMaxBackoffNs = 4096;

/// Writes to the status record why this kernel ends its waits, unless another block of this rank
/// has. The record is complete when this returns: if there is none after the kernel has ended, no
/// wait timed out.
POLYPATH_DEVICE void report(const wait_context& wait_ctx, wait_error::Reason reason,
                            const wait_target& awaited) {
  wait_error* const status = wait_ctx.status;
  if (atomic_add_relaxed(wait_ctx.reports, 1U) != 0) {
    while (load_volatile(&status->given_up) == 0) spin_pause();
    return;
  }
  store_volatile(&status->kernel, wait_ctx.kernel);
  store_volatile(&status->reason, static_cast<std::uint32_t>(reason));
  store_volatile(&status->waited_for_rank, awaited.rank);
  store_volatile(&status->block, static_cast<std::uint32_t>(block_index()));
  store_volatile(&status->expected, awaited.expected);
  store_volatile(&status->seen, awaited.seen);
  store_volatile(&status->offset, awaited.offset);
  store_volatile(&status->bytes, awaited.bytes);
  fence_sys();
  store_volatile(&status->given_up, 1U);
}

/// The timer of one wait: whether it has lasted too long.
class wait_timer {
 public:
  /// Called repeatedly, by all that wait together alike. True: the wait is over, `reason()` says
  /// why. `looks_at_host`: true for one of those that wait together.
  POLYPATH_DEVICE bool is_over(const wait_context& wait_ctx, bool looks_at_host = true) {
    const std::uint64_t now = global_timer_ns();
    if (began_ == 0) {
      began_ = now;
      looks_at_ = now + pause_ns_;
      if (others_timed_out(wait_ctx)) return true;
    }
    lasted_ns_ = now - began_;
    // The abort word is memory of the host. A thread that reads it is away for up to 70 us (2 x
    // H200 in a virtual machine), so ranks that look in every short wait keep each other late.
    if (now >= looks_at_) {
      if (wait_ctx.next_abort_poll_ns != nullptr && others_timed_out(wait_ctx)) return true;
      if (looks_at_host && is_to_look(wait_ctx, now)) {
        bool is_aborted = load_volatile(wait_ctx.abort_flag) != 0;
        POLYPATH_MUTANT(wait_mutant::no_look_at_the_abort_word, is_aborted = false)
        has_looked(wait_ctx, now);
        if (is_aborted) {
          reason_ = wait_error::aborted;
          return true;
        }
      }
      if (wait_ctx.next_abort_poll_ns == nullptr && pause_ns_ < kMaxPollIntervalNs) pause_ns_ *= 2;
      looks_at_ = now + pause_ns_;
    }
    if (lasted_ns_ > wait_ctx.time_limit_ns) reason_ = wait_error::time_limit;
    return reason_ != wait_error::none;
  }
  /// Between two looks at what a long wait is for: those that all wait for one load the memory less
  /// that this one needs.
  POLYPATH_DEVICE void rest() const {
    const std::uint64_t part = lasted_ns_ / kHostPollFraction;
    if (part != 0) spin_backoff(static_cast<unsigned>(part < kMaxBackoffNs ? part : kMaxBackoffNs));
  }
  [[nodiscard]] POLYPATH_DEVICE wait_error::Reason reason() const { return reason_; }

  /// Whether the abort word was set, or another wait of this rank timed out, as far as is known.
  /// For polling without a time limit. Host memory is read when a poll of it is due.
  POLYPATH_DEVICE static bool is_aborted(const wait_context& wait_ctx) {
    POLYPATH_MUTANT_OMITS(wait_mutant::no_look_at_the_reports)
    if (load_volatile(wait_ctx.reports) != 0) return true;
    const std::uint64_t now = global_timer_ns();
    POLYPATH_MUTANT(wait_mutant::no_look_at_the_abort_word, return false)
    if (!is_to_look(wait_ctx, now)) return false;
    const bool is_set = load_volatile(wait_ctx.abort_flag) != 0;
    has_looked(wait_ctx, now);
    return is_set;
  }

 private:
  // In memory of this GPU: of a kernel that waits many times, only the first wait is long.
  POLYPATH_DEVICE bool others_timed_out(const wait_context& wait_ctx) {
    POLYPATH_MUTANT(wait_mutant::no_look_at_the_reports, return false)
    if (load_volatile(wait_ctx.reports) == 0) return false;
    reason_ = wait_error::aborted;
    return true;
  }
  /// Among all that wait with one `next_abort_poll_ns`, one is away at a time.
  POLYPATH_DEVICE static bool is_to_look(const wait_context& wait_ctx, std::uint64_t now) {
    if (wait_ctx.next_abort_poll_ns == nullptr) return true;
    const std::uint64_t due = load_relaxed<device_scope>(wait_ctx.next_abort_poll_ns);
    return now >= due &&
           compare_exchange<device_scope>(wait_ctx.next_abort_poll_ns, due,
                                          now + kHostPollFraction * kHostPollNs) == due;
  }
  /// After a look that began when is_to_look() was asked: the slower it was, the later the next.
  POLYPATH_DEVICE static void has_looked(const wait_context& wait_ctx, std::uint64_t began) {
    if (wait_ctx.next_abort_poll_ns == nullptr) return;
    const std::uint64_t now = global_timer_ns();
    std::uint64_t pause = (now - began) * kHostPollFraction;
    if (pause < kHostPollNs) pause = kHostPollNs;
    if (pause > kMaxPollIntervalNs) pause = kMaxPollIntervalNs;
    (void)compare_exchange<device_scope>(wait_ctx.next_abort_poll_ns,
                                         began + kHostPollFraction * kHostPollNs, now + pause);
  }

  std::uint64_t began_ = 0;
  std::uint64_t lasted_ns_ = 0;  ///< at the last call of is_over()
  std::uint64_t looks_at_ = 0;
  std::uint64_t pause_ns_ = kHostPollNs;
  wait_error::Reason reason_ = wait_error::none;
};

/// Whether the communicator was aborted, for a thread that polls. True: all waits of this rank end
/// from now on; if none has before, the status record says so of `number`.
POLYPATH_DEVICE_NOINLINE bool is_aborted(const wait_context& wait_ctx, std::uint32_t number) {
  if (!wait_timer::is_aborted(wait_ctx)) return false;
  report(wait_ctx, wait_error::aborted, {wait_error::kNobody, 0, 0, number, 0});
  return true;
}
/// For a group, one of whose threads looks.
POLYPATH_DEVICE bool is_aborted(const this_thread&, const wait_context& wait_ctx,
                                std::uint32_t number) {
  return is_aborted(wait_ctx, number);
}
POLYPATH_DEVICE bool is_aborted(const this_warp& warp, const wait_context& wait_ctx,
                                std::uint32_t number) {
  return warp_any(warp.is_leader() && is_aborted(wait_ctx, number));
}

/// Waits until `ready()`, which loads what it looks at. False: the abort word was set, the time is
/// up, or another wait of this rank timed out; the status record says what the first of them was
/// for. After false, the caller publishes nothing more.
template <typename Ready, typename WhatFor>
POLYPATH_DEVICE bool wait_until(const wait_context& wait_ctx, const Ready& ready,
                                const WhatFor& awaited) {
  wait_timer watch;
  const bool is_ready = spin_until(ready, [&] { return watch.is_over(wait_ctx); });
  if (!is_ready) report(wait_ctx, watch.reason(), awaited());
  return is_ready;
}

namespace detail {

/// `kTogether`: as wait_until_all(), else as wait_until(), of a warp.
template <bool kTogether, typename Ready, typename WhatFor>
POLYPATH_DEVICE bool wait_in_warp(const this_warp& warp, const wait_context& wait_ctx,
                                  const Ready& ready, const WhatFor& awaited) {
  wait_timer watch;
  bool is_ready = false;
  for (unsigned turn = 1;; ++turn) {
    if (kTogether || !is_ready) is_ready = ready();
    const unsigned arrived = warp_ballot(is_ready);
    if (arrived == ~0U) return true;
    if (turn % detail::kSpinsPerPoll == 0) {
      const bool speaks = warp.rank() == countr_one(arrived);
      const bool is_over = watch.is_over(wait_ctx, speaks);
      if (warp_any(is_over && speaks)) {
        if (speaks) report(wait_ctx, watch.reason(), awaited());
        warp_sync();
        return !kTogether && is_ready;
      }
    }
    if (!is_ready) spin_pause();
    watch.rest();
  }
}

}  // namespace detail

/// The same for a group, whose threads all call it, each with what it waits for itself. A warp
/// waits together: one of it looks at the host. Returns each thread's own answer.
template <typename Ready, typename WhatFor>
POLYPATH_DEVICE bool wait_until(const this_thread&, const wait_context& wait_ctx,
                                const Ready& ready, const WhatFor& awaited) {
  return wait_until(wait_ctx, ready, awaited);
}
template <typename Ready, typename WhatFor>
POLYPATH_DEVICE bool wait_until(const this_warp& warp, const wait_context& wait_ctx,
                                const Ready& ready, const WhatFor& awaited) {
  return detail::wait_in_warp<false>(warp, wait_ctx, ready, awaited);
}

/// For what a warp loads together: each turn calls all threads' `ready()`, until one turn has true
/// from all. Returns that for all alike; errors as wait_until().
template <typename Ready, typename WhatFor>
POLYPATH_DEVICE bool wait_until_all(const this_warp& warp, const wait_context& wait_ctx,
                                    const Ready& ready, const WhatFor& awaited) {
  return detail::wait_in_warp<true>(warp, wait_ctx, ready, awaited);
}

/// Waits for the abort that the host makes of this rank's report, however long it takes: what comes
/// after may tell other ranks what never happened, and they can know by then.
POLYPATH_DEVICE void wait_for_abort(const wait_context& wait_ctx) {
  POLYPATH_MUTANT(wait_mutant::goes_on_unreported, return)
  spin_until([&] { return load_volatile(wait_ctx.abort_flag) != 0; },
             [] {
               (void)global_timer_ns();  // where it is simulated, time goes on
               return false;
             });
}

/// Whether `current` is at `value` or past it, in the circle of 64-bit numbers.
POLYPATH_DEVICE bool has_come(std::uint64_t current, std::uint64_t value) {
  return static_cast<std::int64_t>(current - value) >= 0;
}

}  // namespace polypath::device
