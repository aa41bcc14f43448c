// What polypath's kernels are written against: one source for the GPU (nvcc) and for its twin on
// the host (g++), where tests and the simulated driver run it. C++17.
//
// On the device each function is one PTX instruction or intrinsic (device.cuh). On the host
// (host.hpp) the threads of all blocks are fibers whose turns a seed shuffles, and what hardware
// may do, it does: a store becomes visible to other blocks and GPUs late and out of order, until a
// fence or release; a plain load may see what the block has loaded before, until an acquire.
//
// Rules for a kernel that runs on both:
// - Grids and blocks have one dimension; a block has whole warps. All threads of a warp take part
//   in each of its operations.
// - Global memory is touched through the functions below and nothing else: on the host an address
//   of the device is not an address of the program. Shared memory and locals are touched directly,
//   shared memory only between barriers that order it.
// - Bytes in bulk go by copy_tile and reduce_tile (tile.cuh): what one thread does with each word
//   costs the host a thousand times more.
// - A loop that waits for another thread calls spin_pause() in each turn, or is spin_until(). It
//   waits for global memory; for shared memory, use a barrier.
// - It is right for any number of warps that its roles allow (block_size(), never a constant): the
//   simulated driver folds a block to as few threads as SIMT_FOLDS says, for speed.
// - No static variables, no exceptions, no allocation, no recursion; stack frames under 8 KiB.
//
//   SIMT_KERNEL(polypath_example, 512, ExampleArgs args) { ... }
// defines the kernel: its name (not mangled), the most threads a block may have, its parameters.
// SIMT_FOLDS(name, threads); behind it: so few threads do the same as more.
// SIMT_DEVICE before every other function of a kernel; SIMT_DEVICE_CALLED before one that is not
// put in place but called, so that its loops have the registers for themselves.
// SIMT_SHARED(Type, name); inside a function: a variable in the block's shared memory, not
// initialised.
//
// Index and size:
//   thread_index() block_size() block_index() grid_size(), lane_index() warp_index()
//   dynamic_shared<T>()          the dynamic shared memory of the launch, aligned to 16 bytes
//
// Kernels behind one another:
//   wait_for_earlier_kernels()   until those ahead on the stream have ended, and their stores are
//                                seen. A kernel that is launched to begin early (programmatic
//                                stream serialization) calls it in every thread before it uses
//                                memory; for others it does nothing.
//
// Barriers and warp operations:
//   block_sync()                        all threads of the block; memory is ordered between them
//   barrier_sync(id, threads)           bar.sync: so many threads (whole warps) on barrier 1 to 15
//   barrier_any(id, threads, value)     the same; true for all when `value` is true for one
//   warp_sync() warp_ballot(bool) warp_any(bool) warp_all(bool)
//   warp_shuffle(value, lane) warp_shuffle_xor(value, mask)   values of 4 or 8 bytes
//   Group (group.cuh): the whole block, or some of its warps, with one of the barriers
//
// Loads and stores of 1, 2, 4, 8 and 16 bytes (any trivially copyable T of that size), aligned:
//   load, store                   plain: ordered by fences and barriers alone; a load may see what
//                                 this block has loaded before, until an acquire
//   load_constant                 ld.global.nc: of memory that nobody writes while the kernel runs
//   load_streaming, store_streaming       plain, past the first-level cache
//   load_volatile, store_volatile         each is carried out, nothing is ordered
//   load_relaxed, store_relaxed           .relaxed.sys: as volatile, within the memory model
//   load_acquire(p)               .acquire.sys, std::uint32_t and std::uint64_t
//   store_release(p, value)       .release.sys, the same two types: behind all that this thread
//                                 has stored, and all that others stored before a barrier with it
//   red_add_relaxed(p, value), red_add_release(p, value), atomic_add_relaxed, atomic_add_acq_rel
//   fence_sys(), fence_gpu()      fence.acq_rel
// A load or store of 16 bytes is one access on the GPUs we know, though PTX does not promise it.
//
// Time: global_timer_ns() sleep_ns(ns) spin_pause()
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "simt/half.cuh"
#if defined(__CUDACC__)
#include "simt/device.cuh"
#else
#include "simt/host.hpp"
#endif

namespace polypath::simt {

inline constexpr unsigned kWarp = 32;

SIMT_DEVICE unsigned lane_index() { return thread_index() % kWarp; }
SIMT_DEVICE unsigned warp_index() { return thread_index() / kWarp; }

/// Waits until `ready()` is true: then true; false as soon as `give_up()` is. Both are called by
/// this thread, over and over, `give_up` less often; they load what they look at afresh.
template <typename Ready, typename GiveUp>
SIMT_DEVICE bool spin_until(const Ready& ready, const GiveUp& give_up) {
  for (unsigned turn = 1;; ++turn) {
    if (ready()) return true;
    if ((turn % detail::kTurnsPerLook) == 0 && give_up()) return false;
    spin_pause();
  }
}

}  // namespace polypath::simt

#include "simt/group.cuh"
#include "simt/tile.cuh"
