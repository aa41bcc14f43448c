// Small messages of a stream, by stores into the other ranks' memory: a copy engine takes longer to
// begin than they take to send (docs/cuda-notes.md).
#pragma once

#include "comm/kernels/stream_put_args.h"
#include "comm/kernels/wait_mutants.h"
#include "polypath/device/wait.cuh"
#include "simt/platform.cuh"

namespace polypath {

/// Whether this block is the last of a put's that has stored its bytes: it finds those of all.
SIMT_DEVICE bool ends_put(const PutPart& part) {
  if (part.blocks == 1) return true;
  bool is_last = false;
  if (simt::thread_index() == 0) {
    is_last = has_mutant(StreamPutFault::word_by_any_block) ||
              simt::atomic_add_acq_rel(part.arrived, 1U) + 1 == part.blocks;
    if (is_last && !has_mutant(StreamPutFault::count_not_put_back)) simt::store(part.arrived, 0U);
  }
  return is_last;
}

/// The puts that a block has to do with, in their order.
SIMT_DEVICE void put_parts(const StreamPutArgs& args, std::uint32_t block) {
  constexpr std::uint64_t kWord = 16;
  const device::this_block group;
  for (std::uint32_t i = 0; i < args.part_count; ++i) {
    const PutPart& part = args.parts[i];
    const std::uint32_t own = block - part.first_block;
    if (own >= part.blocks) continue;
    if (has_mutant(StreamPutFault::word_before_bytes) && group.is_leader() && part.word != nullptr)
      simt::store_release(part.word, part.value);
    const std::uint64_t share = (part.bytes / part.blocks + kWord) / kWord * kWord;
    const std::uint64_t begin = own * share;
    if (begin < part.bytes) {
      const std::uint64_t left = part.bytes - begin;
      simt::copy_tile(group, simt::pointer_list<unsigned char, 1>{{part.to + begin}, 1},
                      part.from + begin, left < share ? left : share);
    }
    // Orders stores of all threads: before the word, and before the stores of the next put.
    if (!has_mutant(StreamPutFault::word_before_the_block)) group.sync();
    if (part.word != nullptr && ends_put(part) && group.is_leader()) {
      if (has_mutant(StreamPutFault::word_without_release))
        simt::store_relaxed(part.word, part.value);
      else
        simt::store_release(part.word, part.value);
    }
  }
}

SIMT_DEVICE void await_words(const StreamPutArgs& args) {
  for (std::uint32_t i = simt::thread_index(); i < args.wait_count; i += simt::block_size()) {
    if (i > 0 && has_mutant(StreamPutFault::first_wait_alone)) continue;
    const PutWait& wait = args.waits[i];
    std::uint64_t seen = 0;
    const auto ready = [&] {
      seen = simt::load_acquire(wait.word);
      return device::has_come(seen, wait.value);
    };
    const auto awaited = [&] {
      return device::wait_target{wait_error::kNobody, wait.value, seen, wait.offset, wait.bytes};
    };
    if (!device::wait_until(args.wait_ctx, ready, awaited))
      return device::wait_for_abort(args.wait_ctx);
  }
}

}  // namespace polypath
