// The kernels by which a stream waits for signals or at a barrier, and puts what is small. They
// poll the abort word themselves: an abort needs no room on the GPU to release them. Work that
// follows on the stream sees what was stored before the words were; or, after a timeout, runs
// after the abort.
#include "comm/kernels/exchange_args.h"
#include "comm/kernels/stream_put.cuh"
#include "comm/kernels/stream_wait_args.h"
#include "comm/kernels/wait_mutants.h"
#include "polypath/device/wait.cuh"
#include "simt/platform.cuh"

namespace polypath {

SIMT_DEVICE bool is_at(std::uint64_t current, std::uint64_t value) {
  if (has_mutant(StreamWaitFault::exact_value)) return current == value;
  if (has_mutant(StreamWaitFault::no_circle)) return current >= value;
  return device::has_come(current, value);
}

SIMT_DEVICE std::uint64_t load_word(const std::uint64_t* word) {
  return has_mutant(StreamWaitFault::words_loaded_plainly) ? simt::load(word)
                                                           : simt::load_acquire(word);
}

}  // namespace polypath

SIMT_KERNEL(polypath_stream_wait, polypath::kStreamWaitThreads, polypath::StreamWaitArgs args) {
  using namespace polypath;
  if (simt::thread_index() != 0) return;
  std::uint64_t seen = 0;
  const auto ready = [&] {
    seen = load_word(args.word);
    return is_at(seen, args.value);
  };
  const auto awaited = [&] {
    return device::wait_target{wait_error::kNobody, args.value, seen, args.offset, args.bytes};
  };
  if (!device::wait_until(args.wait_ctx, ready, awaited)) device::wait_for_abort(args.wait_ctx);
}

SIMT_KERNEL(polypath_stream_signals, polypath::kStreamWaitThreads,
            polypath::StreamSignalArgs args) {
  using namespace polypath;
  std::uint64_t since = 0;
  if (args.epoch != nullptr) {
    const std::uint64_t epoch = simt::load_volatile(args.epoch) + (args.begins_epoch ? 1 : 0);
    simt::block_sync();  // all have read it
    if (args.begins_epoch && simt::thread_index() == 0) simt::store_volatile(args.epoch, epoch);
    since = has_mutant(StreamWaitFault::epoch_not_counted) ? std::uint64_t{1} << kEpochShift
                                                           : epoch << kEpochShift;
  }
  for (std::uint32_t i = simt::thread_index(); i < args.signal_count; i += simt::block_size()) {
    simt::fence_sys();
    simt::store_release(args.signals[i].word, since + args.signals[i].value);
  }
  for (std::uint32_t i = simt::thread_index(); i < args.awaited_count; i += simt::block_size()) {
    if (i > 0 && has_mutant(StreamWaitFault::first_word_alone)) continue;
    const WordValue target{args.awaited[i].word, since + args.awaited[i].value};
    std::uint64_t seen = 0;
    const auto ready = [&] {
      seen = load_word(target.word);
      return is_at(seen, target.value);
    };
    const auto awaited = [&] {
      const auto index = static_cast<std::uint64_t>(target.word - args.base);
      if (args.bytes == 0) {
        const unsigned shift = args.epoch != nullptr ? kEpochShift : 0;
        return device::wait_target{static_cast<std::uint32_t>(index), target.value >> shift,
                                   seen >> shift};
      }
      const std::uint64_t offset = index * sizeof seen;
      return device::wait_target{wait_error::kNobody, target.value, seen, offset, args.bytes};
    };
    if (!device::wait_until(args.wait_ctx, ready, awaited))
      return device::wait_for_abort(args.wait_ctx);
  }
}

SIMT_KERNEL(polypath_exchange_begin, polypath::kStreamWaitThreads, polypath::ExchangeArgs args) {
  using namespace polypath;
  if (simt::thread_index() == 0)
    simt::store(args.local,
                ExchangeRecord{simt::load_volatile(args.wait_ctx.reports), args.what, args.count});
  for (std::uint32_t node = simt::thread_index(); node < args.nodes; node += simt::block_size())
    simt::store(args.remote + node, ExchangeRecord{0, args.what, args.count});
}

SIMT_KERNEL(polypath_exchange_end, polypath::kStreamWaitThreads, polypath::ExchangeArgs args) {
  using namespace polypath;
  // What a kernel of this rank should have written goes no further either.
  bool is_right = simt::load_volatile(args.wait_ctx.reports) == 0;
  for (std::uint32_t node = simt::thread_index(); node < args.nodes; node += simt::block_size()) {
    const ExchangeRecord record = simt::load(args.remote + node);
    const bool is_alike = record.what == args.what && record.count == args.count;
    if (record.given_up == 0 && is_alike) continue;
    if (has_mutant(StreamWaitFault::records_not_looked_at)) continue;
    device::report(
        args.wait_ctx, record.given_up != 0 ? wait_error::node_aborted : wait_error::mismatch,
        {node, std::uint64_t{args.waits} << 32 | args.what, record.what, args.count, record.count});
    is_right = false;
  }
  if (!is_right) device::wait_for_abort(args.wait_ctx);
}

SIMT_KERNEL(polypath_stream_puts, polypath::kStreamPutThreads, polypath::StreamPutArgs args) {
  using namespace polypath;
  const std::uint32_t block = simt::block_index();
  if (block < args.put_blocks)
    put_parts(args, block);
  else
    await_words(args);
}
SIMT_EMULATED_THREADS(polypath_stream_puts, 32);
