// What device code of polypath is written against, its own kernels and yours: the names of PTX
// instructions, with scope and order in them. CUDA C++17, sm_70 and newer, header only: no -rdc.
//
// Polypath's own tests compile the same code for the host (docs/simt.md).
//
// POLYPATH_DEVICE before each function; POLYPATH_DEVICE_NOINLINE before one that is not put in
// place but called, so that its loops have the registers for themselves.
//
// Index and size:
//   thread_index() block_size() block_index() grid_size(), lane_index() warp_index()
//                                of grids and blocks of one dimension
//   rank_in_block() threads_of_block() rank_in_warp()    of blocks of any
//   dynamic_shared<T>()          the dynamic shared memory of the launch, aligned to 16 bytes
//   as_shared(variable)            the same variable, which is in shared memory, by an address that
//                                is kept: compilers would make it anew for each access, from a
//                                register that takes long to read (some 40 cycles on an H100)
//   opaque(value)                  the same value, of 4 or 8 bytes, of which the compiler knows
//                                nothing more: what depends on it is worked out where it is used,
//                                and takes no registers before
//
// Kernels after one another:
//   grid_dependency_wait()   until those ahead on the stream have ended, and their stores are
//                                seen. A kernel that is launched to begin early (programmatic
//                                stream serialization) calls it in every thread before it uses
//                                memory; for others it does nothing.
//
// Barriers and warp operations:
//   block_sync()                        all threads of the block; memory is ordered between them
//   block_any(value)                    the same; true for all when `value` is true for one
//   barrier_sync(id, threads)           bar.sync: `threads` threads, whole warps, on 1 to 15
//   barrier_any(id, threads, value)     the same; true for all when `value` is true for one
//   warp_sync() warp_ballot(bool) warp_any(bool) warp_all(bool)
//   countr_one(bits)             of a ballot: lanes from 0 on that said true
//   popcount(bits)                 of a ballot: lanes that said true
//   countl_zero(bits)           32 of none
//   warp_shuffle(value, lane) warp_shuffle_xor(value, mask)   values of 4 or 8 bytes
//   group.cuh has thread, warp, block, and some warps of a block, as groups
//
// Loads and stores of 1, 2, 4, 8 and 16 bytes (any trivially copyable T of that size), aligned:
//   load, store                   plain: ordered by fences and barriers alone; a load may see what
//                                 this block has loaded before, until an acquire
//   load_constant                 ld.global.nc: memory must not be written while the kernel runs
//   load_streaming, store_streaming       plain, past the first-level cache
//   load_volatile, store_volatile         each is carried out, nothing is ordered
//   load_relaxed, store_relaxed           .relaxed.sys: as volatile, within the memory model
//   load_acquire(p)               .acquire.sys, std::uint32_t and std::uint64_t
//   store_release(p, value)       .release.sys, the same two types: after all that this thread
//                                 has stored, and all that others stored before a barrier with it
//   red_add_relaxed(p, value), red_add_release(p, value), atomic_add_relaxed, atomic_add_acq_rel
//   fence_sys(), fence_gpu()      fence.acq_rel
// A load or store of 16 bytes is one access on the GPUs we know, though PTX does not promise it.
//
// Time: global_timer_ns() sleep_ns(ns)
//   spin_pause() spin_backoff(ns)          between two looks at what a thread waits for; rest: so
//   long
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "polypath/device/detail/half.cuh"
#if defined(__CUDACC__)
#include "polypath/device/detail/ptx.cuh"
#elif __has_include("simt/host.hpp")
#include "simt/host.hpp"
#else
#error "polypath/device is for a CUDA compiler"
#endif

// Before a loop: one whose arrays must stay in registers; one that is seldom run, to keep the code
// small.
#if defined(__CUDACC__)
#define POLYPATH_UNROLL _Pragma("unroll")
#define POLYPATH_NO_UNROLL _Pragma("unroll 1")
#else
#define POLYPATH_UNROLL
#define POLYPATH_NO_UNROLL
#endif

namespace polypath::device {

inline constexpr unsigned kWarp = 32;

POLYPATH_DEVICE unsigned lane_index() { return thread_index() % kWarp; }
POLYPATH_DEVICE unsigned warp_index() { return thread_index() / kWarp; }

/// Waits until `ready()` is true: then true; false as soon as `give_up()` is. Both are called by
/// this thread, over and over, `give_up` less often; they load what they look at afresh.
template <typename Ready, typename GiveUp>
POLYPATH_DEVICE bool spin_until(const Ready& ready, const GiveUp& give_up) {
  for (unsigned turn = 1;; ++turn) {
    if (ready()) return true;
    if ((turn % detail::kSpinsPerPoll) == 0 && give_up()) return false;
    spin_pause();
  }
}

}  // namespace polypath::device
