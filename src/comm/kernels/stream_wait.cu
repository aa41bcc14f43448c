// The kernel by which a stream waits for a signal or at a barrier. It looks at the abort word
// itself: an abort needs no room on the GPU to let it go. What comes behind it on the stream finds
// what was stored before the words were; or, when it gave up, runs behind the abort.
#include "comm/kernels/giving_up.cuh"
#include "comm/kernels/stream_wait_args.h"

namespace polypath {

/// Whether `found` is at `value` or past it.
SIMT_DEVICE bool has_come(std::uint64_t found, std::uint64_t value) {
  if (planted(WaitFault::exact_value)) return found == value;
  if (planted(WaitFault::no_circle)) return found >= value;
  return static_cast<std::int64_t>(found - value) >= 0;
}

SIMT_DEVICE std::uint64_t load_word(const std::uint64_t* word) {
  return planted(WaitFault::words_loaded_plainly) ? simt::load(word) : simt::load_acquire(word);
}

}  // namespace polypath

SIMT_KERNEL(polypath_stream_wait, polypath::kStreamWaitThreads, polypath::StreamWaitArgs args) {
  using namespace polypath;
  const bool is_barrier = args.bytes == 0;
  for (std::uint32_t i = simt::thread_index(); i < args.count; i += simt::block_size()) {
    if (i == args.own && !planted(WaitFault::own_word_as_well)) continue;
    if (is_barrier && i > 1 && planted(WaitFault::first_word_alone)) continue;
    std::uint64_t seen = 0;
    const auto ready = [&] {
      seen = load_word(args.words + i);
      return has_come(seen, args.value);
    };
    const auto awaited = [&] {
      const std::uint32_t rank = is_barrier ? i : StatusRecord::kNobody;
      return Awaited{rank, args.value, seen, args.offset, args.bytes};
    };
    if (!wait_with(args.patience, ready, awaited)) return wait_for_abort(args.patience);
  }
}
