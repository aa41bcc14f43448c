// The kernels by which a stream waits for signals or at a barrier, and puts what is small. They
// look at the abort word themselves: an abort needs no room on the GPU to let them go. What comes
// behind one on the stream finds what was stored before the words were; or, when it gave up, runs
// behind the abort.
#include "comm/kernels/planted_wait_faults.h"
#include "comm/kernels/stream_put.cuh"
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

SIMT_KERNEL(polypath_stream_signals, polypath::kStreamWaitThreads,
            polypath::StreamSignalArgs args) {
  using namespace polypath;
  std::uint64_t since = 0;
  if (args.epoch != nullptr) {
    const std::uint64_t epoch = simt::load_volatile(args.epoch) + (args.begins_epoch ? 1 : 0);
    simt::block_sync();  // all have read it
    if (args.begins_epoch && simt::thread_index() == 0) simt::store_volatile(args.epoch, epoch);
    since = planted(StreamWaitFault::epoch_not_counted) ? std::uint64_t{1} << kEpochShift
                                                        : epoch << kEpochShift;
  }
  for (std::uint32_t i = simt::thread_index(); i < args.told_count; i += simt::block_size()) {
    simt::fence_sys();
    simt::store_release(args.told[i].word, since + args.told[i].value);
  }
  for (std::uint32_t i = simt::thread_index(); i < args.awaited_count; i += simt::block_size()) {
    if (i > 0 && planted(StreamWaitFault::first_word_alone)) continue;
    const WordValue wanted{args.awaited[i].word, since + args.awaited[i].value};
    std::uint64_t seen = 0;
    const auto ready = [&] {
      seen = load_word(wanted.word);
      return is_at(seen, wanted.value);
    };
    const auto awaited = [&] {
      const auto index = static_cast<std::uint64_t>(wanted.word - args.base);
      if (args.bytes == 0)
        return device::Awaited{static_cast<std::uint32_t>(index), wanted.value, seen};
      const std::uint64_t offset = index * sizeof seen;
      return device::Awaited{StatusRecord::kNobody, wanted.value, seen, offset, args.bytes};
    };
    if (!device::wait_with(args.patience, ready, awaited))
      return device::wait_for_abort(args.patience);
  }
}

SIMT_KERNEL(polypath_stream_puts, polypath::kStreamPutThreads, polypath::StreamPutArgs args) {
  using namespace polypath;
  const std::uint32_t block = simt::block_index();
  if (block < args.put_blocks)
    put_parts(args, block);
  else
    await_words(args);
}
SIMT_FOLDS(polypath_stream_puts, 32);
