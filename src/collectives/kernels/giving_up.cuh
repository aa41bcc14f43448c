// How a kernel waits for another rank, and what it does when that rank does not come.
#pragma once

#include <cstdint>

#include "collectives/kernels/collective_args.h"
#include "comm/status_record.hpp"
#include "simt/platform.cuh"

namespace polypath {

/// What a kernel that gave up had waited for.
struct Awaited {
  std::uint32_t rank;
  std::uint64_t expected;  ///< what the rank was to bring,
  std::uint64_t seen;      ///< and what was there last
};

/// Says in the status record why this kernel gives up, unless another block of this rank has.
SIMT_DEVICE void report(const CollectiveArgs& args, StatusRecord::Reason reason,
                        const Awaited& awaited) {
  auto* const reports =
      reinterpret_cast<std::uint32_t*>(args.scratch[args.rank] + ScratchLayout::gave_up());
  if (simt::atomic_add_relaxed(reports, 1U) != 0) return;
  StatusRecord* const status = args.status;
  simt::store_volatile(&status->kernel, args.kernel);
  simt::store_volatile(&status->reason, static_cast<std::uint32_t>(reason));
  simt::store_volatile(&status->waited_for_rank, awaited.rank);
  simt::store_volatile(&status->block, static_cast<std::uint32_t>(simt::block_index()));
  simt::store_volatile(&status->expected, awaited.expected);
  simt::store_volatile(&status->seen, awaited.seen);
  simt::fence_sys();
  simt::store_volatile(&status->given_up, 1U);
}

/// Waits until `ready()`, which loads what it looks at. False: the abort word was set, or the time
/// is up, and the status record says what `awaited()` was. Whoever gets false publishes nothing
/// more, and leaves its counts as they are.
template <typename Ready, typename WhatFor>
SIMT_DEVICE bool wait_for_rank(const CollectiveArgs& args, const Ready& ready,
                               const WhatFor& awaited) {
  std::uint64_t began = 0;
  auto reason = StatusRecord::none;
  const bool came = simt::spin_until(ready, [&] {
    if (simt::load_volatile(args.abort_word) != 0) {
      reason = StatusRecord::aborted;
      return true;
    }
    const std::uint64_t now = simt::global_timer_ns();
    if (began == 0) began = now;
    if (now - began > args.time_limit_ns) reason = StatusRecord::time_limit;
    return reason != StatusRecord::none;
  });
  if (!came) report(args, reason, awaited());
  return came;
}

}  // namespace polypath
