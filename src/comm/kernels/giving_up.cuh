// How a kernel waits for another rank, and what it does when that rank does not come.
#pragma once

#include <cstdint>

#include "comm/kernels/planted_wait_faults.h"
#include "comm/status_record.hpp"
#include "simt/platform.cuh"

namespace polypath {

/// What a kernel that gave up had waited for.
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
SIMT_DEVICE void report(const Patience& patience, StatusRecord::Reason reason,
                        const Awaited& awaited) {
  StatusRecord* const status = patience.status;
  if (simt::atomic_add_relaxed(patience.reports, 1U) != 0) {
    while (simt::load_volatile(&status->given_up) == 0) simt::spin_pause();
    return;
  }
  simt::store_volatile(&status->kernel, patience.kernel);
  simt::store_volatile(&status->reason, static_cast<std::uint32_t>(reason));
  simt::store_volatile(&status->waited_for_rank, awaited.rank);
  simt::store_volatile(&status->block, static_cast<std::uint32_t>(simt::block_index()));
  simt::store_volatile(&status->expected, awaited.expected);
  simt::store_volatile(&status->seen, awaited.seen);
  simt::store_volatile(&status->offset, awaited.offset);
  simt::store_volatile(&status->bytes, awaited.bytes);
  simt::fence_sys();
  simt::store_volatile(&status->given_up, 1U);
}

/// Waits until `ready()`, which loads what it looks at. False: the abort word was set, or the time
/// is up, and the status record says what `awaited()` was. Whoever gets false publishes nothing
/// more, and leaves its counts as they are.
template <typename Ready, typename WhatFor>
SIMT_DEVICE bool wait_with(const Patience& patience, const Ready& ready, const WhatFor& awaited) {
  std::uint64_t began = 0;
  std::uint64_t looks_at = 0;
  std::uint64_t pause_ns = simt::kHostLookNs;
  auto reason = StatusRecord::none;
  const bool came = simt::spin_until(ready, [&] {
    const std::uint64_t now = simt::global_timer_ns();
    if (began == 0) {
      began = now;
      looks_at = now + pause_ns;
    }
    // The abort word is memory of the host. Whoever looks there is away for up to 70 us (2 x H200
    // in a virtual machine), so ranks that look in every short wait keep each other late.
    if (now >= looks_at) {
      if (!planted(WaitFault::no_look_at_the_abort_word) &&
          simt::load_volatile(patience.abort_word) != 0) {
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
SIMT_DEVICE void wait_for_abort(const Patience& patience) {
  if (planted(WaitFault::goes_on_unreported)) return;
  simt::spin_until([&] { return simt::load_volatile(patience.abort_word) != 0; },
                   [] {
                     (void)simt::global_timer_ns();  // where it is simulated, time goes on
                     return false;
                   });
}

}  // namespace polypath
