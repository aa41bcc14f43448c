// Copies a range over an emulated link: block b of the grid carries the b-th part of it over lane
// b, and a lane carries one block at a time, of any kernel. So the copies over one link share it as
// they start, and one that has not started holds up no other: a block draws
// its ticket only when it runs, and once it runs it waits for nothing but blocks that run already.
//
// Runs on either GPU of the link (or on a third that reaches both): the lanes' words and both
// ranges are reached by peer access. Everything that another GPU may see or change is read past the
// first-level cache, which is not coherent with it.
#include "exec/kernels/link_copy.h"

namespace polypath {
namespace {

constexpr int kInFlight = 8;  ///< loads of a thread before its first store
constexpr unsigned int kPollNs = 100;

/// All threads of the block; returns when the lane is this block's.
__device__ unsigned int enter(TicketLock* lane) {
  unsigned int ticket = 0;
  if (threadIdx.x == 0) {
    ticket = atomicAdd_system(&lane->next, 1u);
    const volatile unsigned int* serving = &lane->serving;
    while (*serving != ticket) __nanosleep(kPollNs);
  }
  __syncthreads();
  return ticket;  // thread 0's; the others need none
}

/// All threads of the block; the next block begins when every byte of this one has arrived.
__device__ void leave(TicketLock* lane, unsigned int ticket) {
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x == 0) *static_cast<volatile unsigned int*>(&lane->serving) = ticket + 1;
}

/// Copies `count` words with all threads of the block. Both addresses are multiples of the word's
/// size.
template <typename Word>
__device__ void copy_words(unsigned char* to, const unsigned char* from, unsigned long long count) {
  Word* const dst = reinterpret_cast<Word*>(to);
  const Word* const src = reinterpret_cast<const Word*>(from);
  unsigned long long i = threadIdx.x;
  for (; i + (kInFlight - 1) * kLaneThreads < count; i += kInFlight * kLaneThreads) {
    Word words[kInFlight];
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) words[k] = __ldcg(src + i + k * kLaneThreads);
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) __stcg(dst + i + k * kLaneThreads, words[k]);
  }
  for (; i < count; i += kLaneThreads) __stcg(dst + i, __ldcg(src + i));
}

/// Single bytes up to the first word of the destination, words, single bytes of the rest. The two
/// addresses must differ by a multiple of the word's size.
template <typename Word>
__device__ void copy_range(unsigned char* dst, const unsigned char* src, unsigned long long bytes) {
  const unsigned long long to_word =
      (sizeof(Word) - reinterpret_cast<unsigned long long>(dst) % sizeof(Word)) % sizeof(Word);
  const unsigned long long head = to_word < bytes ? to_word : bytes;
  const unsigned long long words = (bytes - head) / sizeof(Word);
  const unsigned long long done = head + words * sizeof(Word);
  copy_words<unsigned char>(dst, src, head);
  copy_words<Word>(dst + head, src + head, words);
  copy_words<unsigned char>(dst + done, src + done, bytes - done);
}

__device__ void copy_part(unsigned char* dst, const unsigned char* src, unsigned long long bytes) {
  // The widest word whose multiples both addresses reach after the same number of bytes.
  const unsigned long long apart =
      reinterpret_cast<unsigned long long>(dst) - reinterpret_cast<unsigned long long>(src);
  if (apart % sizeof(uint4) == 0) {
    copy_range<uint4>(dst, src, bytes);
  } else if (apart % sizeof(uint2) == 0) {
    copy_range<uint2>(dst, src, bytes);
  } else if (apart % sizeof(unsigned int) == 0) {
    copy_range<unsigned int>(dst, src, bytes);
  } else {
    copy_range<unsigned char>(dst, src, bytes);
  }
}

}  // namespace

/// `lanes`: one for each block of the grid. The ranges do not overlap. kLaneThreads threads a
/// block.
extern "C" __global__ void __launch_bounds__(kLaneThreads, 1)
    polypath_link_copy(unsigned char* dst, const unsigned char* src, unsigned long long bytes,
                       TicketLock* lanes) {
  const unsigned long long even = (bytes + gridDim.x - 1) / gridDim.x;
  const unsigned long long part = (even + kLaneGranule - 1) / kLaneGranule * kLaneGranule;
  const unsigned long long start = blockIdx.x * part;
  if (start >= bytes) return;  // the whole block: a short copy needs fewer lanes
  const unsigned long long length = part < bytes - start ? part : bytes - start;
  TicketLock* const lane = lanes + blockIdx.x;
  const unsigned int ticket = enter(lane);
  copy_part(dst + start, src + start, length);
  leave(lane, ticket);
}

}  // namespace polypath
