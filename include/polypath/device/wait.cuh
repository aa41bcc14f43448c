// How device code waits for another rank, and what it does when that rank does not come.
#pragma once

#include <cstdint>

#include "polypath/device/patience.hpp"
#include "polypath/device/planted.hpp"
#include "polypath/device/platform.cuh"

namespace polypath::device {

/// Defects of waits (planted.hpp).
enum class WaitFault {
  none,
  no_look_at_the_abort_word,
  no_look_at_the_reports,  ///< every wait behind one that gave up takes its time, too
  goes_on_unreported       ///< past the time limit: what comes behind tells what never came
};

/// What a wait that gave up had waited for.
struct Awaited {
  std::uint32_t rank;        ///< kNobody: whoever sends the signal
  std::uint64_t expected;    ///< what was to come,
  std::uint64_t seen;        ///< and what was there last
  std::uint64_t offset = 0;  ///< of a signal, and the bytes of its memory: as StatusRecord
  std::uint64_t bytes = 0;
};

/// A kernel sees an abort after so long at the latest.
inline constexpr std::uint64_t kLongestPauseNs = 16'000'000;

/// Says in the status record why this kernel gives up, unless another block of this rank has. When
/// it returns, the record is there: who finds none behind the kernel's end knows that it did not.
POLYPATH_DEVICE void report(const Patience& patience, StatusRecord::Reason reason,
                            const Awaited& awaited) {
  StatusRecord* const status = patience.status;
  if (atomic_add_relaxed(patience.reports, 1U) != 0) {
    while (load_volatile(&status->given_up) == 0) spin_pause();
    return;
  }
  store_volatile(&status->kernel, patience.kernel);
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

/// Waits until `ready()`, which loads what it looks at. False: the abort word was set, the time is
/// up, or another wait of this rank gave up; the status record says what the first of them was
/// for. Whoever gets false publishes nothing more, and leaves its counts as they are.
template <typename Ready, typename WhatFor>
POLYPATH_DEVICE bool wait_with(const Patience& patience, const Ready& ready,
                               const WhatFor& awaited) {
  std::uint64_t began = 0;
  std::uint64_t looks_at = 0;
  std::uint64_t pause_ns = kHostLookNs;
  auto reason = StatusRecord::none;
  const bool came = spin_until(ready, [&] {
    const std::uint64_t now = global_timer_ns();
    if (began == 0) {
      began = now;
      looks_at = now + pause_ns;
      // In memory of this GPU: of a kernel that waits many times, only the first wait is long.
      if (!planted(WaitFault::no_look_at_the_reports) && load_volatile(patience.reports) != 0) {
        reason = StatusRecord::aborted;
        return true;
      }
    }
    // The abort word is memory of the host. Whoever looks there is away for up to 70 us (2 x H200
    // in a virtual machine), so ranks that look in every short wait keep each other late.
    if (now >= looks_at) {
      if (!planted(WaitFault::no_look_at_the_abort_word) &&
          load_volatile(patience.abort_word) != 0) {
        reason = StatusRecord::aborted;
        return true;
      }
      if (pause_ns < kLongestPauseNs) pause_ns *= 2;
      looks_at = now + pause_ns;
    }
    if (now - began > patience.time_limit_ns) reason = StatusRecord::time_limit;
    return reason != StatusRecord::none;
  });
  if (!came) report(patience, reason, awaited());
  return came;
}

/// Waits for the abort that the host makes of this rank's report, however long it takes: what comes
/// behind may tell other ranks what never happened, and they can know by then.
POLYPATH_DEVICE void wait_for_abort(const Patience& patience) {
  if (planted(WaitFault::goes_on_unreported)) return;
  spin_until([&] { return load_volatile(patience.abort_word) != 0; },
             [] {
               (void)global_timer_ns();  // where it is simulated, time goes on
               return false;
             });
}

/// Whether `found` is at `value` or past it, in the circle of 64-bit numbers.
POLYPATH_DEVICE bool has_come(std::uint64_t found, std::uint64_t value) {
  return static_cast<std::int64_t>(found - value) >= 0;
}

}  // namespace polypath::device
