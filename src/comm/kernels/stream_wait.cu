// The kernel by which a stream waits for a signal or at a barrier. It looks at the abort word
// itself: an abort needs no room on the GPU to let it go. What comes behind it on the stream finds
// what was stored before the words were; or, when it gave up, runs behind the abort.
#include "comm/kernels/planted_wait_faults.h"
#include "comm/kernels/stream_wait_args.h"
#include "polypath/device/wait.cuh"
#include "simt/platform.cuh"

namespace polypath {

SIMT_DEVICE bool is_at(std::uint64_t found, std::uint64_t value) {
  if (planted(StreamWaitFault::exact_value)) return found == value;
  if (planted(StreamWaitFault::no_circle)) return found >= value;
  return device::has_come(found, value);
}

SIMT_DEVICE std::uint64_t load_word(const std::uint64_t* word) {
  return planted(StreamWaitFault::words_loaded_plainly) ? simt::load(word)
                                                        : simt::load_acquire(word);
}

}  // namespace polypath

SIMT_KERNEL(polypath_stream_wait, polypath::kStreamWaitThreads, polypath::StreamWaitArgs args) {
  using namespace polypath;
  const bool is_barrier = args.bytes == 0;
  for (std::uint32_t i = simt::thread_index(); i < args.count; i += simt::block_size()) {
    if (i == args.own && !planted(StreamWaitFault::own_word_as_well)) continue;
    if (is_barrier && i > 1 && planted(StreamWaitFault::first_word_alone)) continue;
    std::uint64_t seen = 0;
    const auto ready = [&] {
      seen = load_word(args.words + i);
      return is_at(seen, args.value);
    };
    const auto awaited = [&] {
      const std::uint32_t rank = is_barrier ? i : StatusRecord::kNobody;
      return device::Awaited{rank, args.value, seen, args.offset, args.bytes};
    };
    if (!device::wait_with(args.patience, ready, awaited))
      return device::wait_for_abort(args.patience);
  }
}
