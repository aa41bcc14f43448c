// What polypath's kernels are written against: one source for the GPU (nvcc) and for the host
// (g++), where tests and the simulated driver run it. C++17.
//
// On the device each function is one PTX instruction or intrinsic. On the host (host.hpp) the
// threads of all blocks are fibers whose turns a seed shuffles, and what hardware may do, it does:
// a store becomes visible to other blocks and GPUs late and out of order, until a fence or release;
// a plain load may see what the block has loaded before, until an acquire.
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
//   simulated driver folds a block to as few threads as SIMT_EMULATED_THREADS says, for speed.
// - No static variables, no exceptions, no allocation, no recursion; stack frames under 8 KiB.
//
//   SIMT_KERNEL(polypath_example, 512, ExampleArgs args) { ... }
// defines the kernel: its name (not mangled), the most threads a block may have, its parameters.
// SIMT_KERNEL_MIN_BLOCKS(polypath_example, 256, 4, ...) has registers for 4 blocks per SM.
// SIMT_EMULATED_THREADS(name, threads); after it: that number of threads does the same as more.
// SIMT_DEVICE, SIMT_DEVICE_NOINLINE: POLYPATH_DEVICE and POLYPATH_DEVICE_NOINLINE, before every
// other function of a kernel.
// SIMT_SHARED(Type, name); inside a function: a variable in the block's shared memory, not
// initialised.
//
// What kernels find is device code's in general: namespace polypath::device, with the list of its
// functions in polypath/device/platform.cuh. Kernels call it simt.
#pragma once

#include "polypath/device/group.cuh"
#include "polypath/device/platform.cuh"
#include "polypath/device/tile.cuh"

#define SIMT_DEVICE POLYPATH_DEVICE
#define SIMT_DEVICE_NOINLINE POLYPATH_DEVICE_NOINLINE
#if defined(__CUDACC__)
#define SIMT_KERNEL_MIN_BLOCKS(name, max_threads, blocks, ...) \
  extern "C" __global__ void __launch_bounds__(max_threads, blocks) name(__VA_ARGS__)
#define SIMT_KERNEL(name, max_threads, ...) \
  SIMT_KERNEL_MIN_BLOCKS(name, max_threads, 1, __VA_ARGS__)
#define SIMT_EMULATED_THREADS(name, threads) static_assert((threads) % 32 == 0)
#define SIMT_SHARED(Type, name) __shared__ Type name
#endif

namespace polypath::simt {
using namespace device;
namespace detail {
using namespace device::detail;
}
}  // namespace polypath::simt
