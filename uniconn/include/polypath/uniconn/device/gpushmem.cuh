// GpushmemBackend in kernels: each call is NVSHMEM's own, to the last instruction. For programs
// with NVSHMEM's headers, compiled with -rdc=true and linked with -lnvshmem_device and
// -l:libnvshmem_host.so.3 (docs/uniconn.md). CUDA C++17.
//
// Ranks are NVSHMEM's PEs: kernels communicate among all ranks of the Environment. Waits end when
// what they wait for comes, and not before: NVSHMEM has no time limit.
#pragma once

#include <nvshmem.h>
#include <nvshmemx.h>

#include "polypath/device/platform.cuh"
#include "polypath/uniconn/device/combine.cuh"
#include "polypath/uniconn/device/groups.cuh"
#include "polypath/uniconn/device/host_types.hpp"
#include "polypath/uniconn/device/program_symbols.hpp"
#include "polypath/uniconn/device_calls.hpp"
#if __cplusplus >= 202002L
#include "polypath/uniconn/backend/gpushmem.hpp"
#endif

// NVSHMEM declares what kernels call only where they are compiled.
#if defined(__CUDA_ARCH__)
#define POLYPATH_NVSHMEM_OF(G, of_thread, of_warp, of_block) \
  do {                                                       \
    if constexpr (G == ThreadGroup::THREAD) of_thread;       \
    if constexpr (G == ThreadGroup::WARP) of_warp;           \
    if constexpr (G == ThreadGroup::BLOCK) of_block;         \
  } while (false)
#else
#define POLYPATH_NVSHMEM_OF(G, of_thread, of_warp, of_block)
#endif

namespace polypath::uniconn::detail {

/// A communicator is a word for each rank, in symmetric memory (tell).
template <>
struct DeviceVerbs<GpushmemBackend> {
  using Comm = Communicator<GpushmemBackend>;
  static constexpr bool kGathersAll = true;
  static constexpr bool kBroadcasts = true;
  static constexpr bool kExchangesAll = true;

  static POLYPATH_DEVICE int rank(const Comm*) { return nvshmem_my_pe(); }
  static POLYPATH_DEVICE int size(const Comm*) { return nvshmem_n_pes(); }
  static POLYPATH_DEVICE std::size_t count_at(const std::size_t* list, int rank) {
    return list[rank];
  }

  template <ThreadGroup G>
  static POLYPATH_DEVICE void post(const void* src, void* dest, std::size_t bytes,
                                   std::uint64_t* signal, std::uint64_t value, int to,
                                   const Comm*) {
    POLYPATH_NVSHMEM_OF(
        G, nvshmem_putmem_signal_nbi(dest, src, bytes, signal, value, NVSHMEM_SIGNAL_SET, to),
        nvshmemx_putmem_signal_nbi_warp(dest, src, bytes, signal, value, NVSHMEM_SIGNAL_SET, to),
        nvshmemx_putmem_signal_nbi_block(dest, src, bytes, signal, value, NVSHMEM_SIGNAL_SET, to));
  }
  template <ThreadGroup G>
  static POLYPATH_DEVICE void put(const void* src, void* dest, std::size_t bytes, int to,
                                  const Comm*) {
    POLYPATH_NVSHMEM_OF(G, nvshmem_putmem_nbi(dest, src, bytes, to),
                        nvshmemx_putmem_nbi_warp(dest, src, bytes, to),
                        nvshmemx_putmem_nbi_block(dest, src, bytes, to));
  }
  template <ThreadGroup G>
  static POLYPATH_DEVICE void put_to_all(const void* src, void* dest, std::size_t bytes,
                                         const Comm* comm) {
    POLYPATH_UNICONN_NO_UNROLL
    for (int to = 0; to < size(comm); ++to) put<G>(src, dest, bytes, to, comm);
  }

  template <ThreadGroup G>
  static POLYPATH_DEVICE void acknowledge(std::uint64_t* signal, std::uint64_t value, int,
                                          const Comm*) {
    const GroupOf<G> group;
#if defined(__CUDA_ARCH__)
    if (group.is_leader()) nvshmem_signal_wait_until(signal, NVSHMEM_CMP_GE, value);
#endif
    group.sync();
  }
  template <ThreadGroup G>
  static POLYPATH_DEVICE void barrier(const Comm*) {
    POLYPATH_NVSHMEM_OF(G, nvshmem_barrier_all(), nvshmemx_barrier_all_warp(),
                        nvshmemx_barrier_all_block());
  }
  /// Quiet is each thread's own: all of the group have come, and one waits for all.
  template <ThreadGroup G>
  static POLYPATH_DEVICE void wait(const Comm*) {
    const GroupOf<G> group;
    group.sync();
#if defined(__CUDA_ARCH__)
    if (group.is_leader()) nvshmem_quiet();
#endif
    group.sync();
  }

  template <ThreadGroup G>
  static POLYPATH_DEVICE void tell(int to, std::uint64_t value, const Comm* comm) {
#if defined(__CUDA_ARCH__)
    if (GroupOf<G>().is_leader()) nvshmem_uint64_p(words(comm) + rank(comm), value, to);
#endif
  }
  static POLYPATH_DEVICE std::uint64_t signal_from(int from, const Comm* comm) {
    return device::load_volatile(words(comm) + from);
  }

  // NVSHMEM's collectives ask that `recv` is free on all ranks before any of them comes.

  template <ThreadGroup G>
  static POLYPATH_DEVICE void all_gather(const void* send, void* recv, std::size_t bytes,
                                         const Comm* comm) {
    barrier<G>(comm);
    POLYPATH_NVSHMEM_OF(G, nvshmem_fcollectmem(NVSHMEM_TEAM_WORLD, recv, send, bytes),
                        nvshmemx_fcollectmem_warp(NVSHMEM_TEAM_WORLD, recv, send, bytes),
                        nvshmemx_fcollectmem_block(NVSHMEM_TEAM_WORLD, recv, send, bytes));
  }
  template <ThreadGroup G>
  static POLYPATH_DEVICE void all_to_all(const void* send, void* recv, std::size_t bytes,
                                         const Comm* comm) {
    barrier<G>(comm);
    POLYPATH_NVSHMEM_OF(G, nvshmem_alltoallmem(NVSHMEM_TEAM_WORLD, recv, send, bytes),
                        nvshmemx_alltoallmem_warp(NVSHMEM_TEAM_WORLD, recv, send, bytes),
                        nvshmemx_alltoallmem_block(NVSHMEM_TEAM_WORLD, recv, send, bytes));
  }
  template <ThreadGroup G>
  static POLYPATH_DEVICE void broadcast(void* buf, std::size_t bytes, int root, const Comm* comm) {
    barrier<G>(comm);
    POLYPATH_NVSHMEM_OF(G, nvshmem_broadcastmem(NVSHMEM_TEAM_WORLD, buf, buf, bytes, root),
                        nvshmemx_broadcastmem_warp(NVSHMEM_TEAM_WORLD, buf, buf, bytes, root),
                        nvshmemx_broadcastmem_block(NVSHMEM_TEAM_WORLD, buf, buf, bytes, root));
  }

  /// NVSHMEM's own where it has one; averages, logical ones, and those to one rank are combined
  /// here, in rank order.
  template <ThreadGroup G, ReductionOperator kOperator, typename T>
  static POLYPATH_DEVICE void reduce(const T* send, T* recv, std::size_t count, int root,
                                     const Comm* comm) {
    constexpr bool kIsBitwise = kOperator == ReductionOperator::BAND ||
                                kOperator == ReductionOperator::BOR ||
                                kOperator == ReductionOperator::BXOR;
    barrier<G>(comm);
    if constexpr (kOperator <= ReductionOperator::MAX || kIsBitwise) {
      if (root < 0) return all_reduce<G, kOperator>(send, recv, count);
    }
    combine_slice<G, kOperator>(send, recv, count, root, comm);
    barrier<G>(comm);
  }

 private:
  static POLYPATH_DEVICE std::uint64_t* words(const Comm* comm) {
    return reinterpret_cast<std::uint64_t*>(const_cast<Comm*>(comm));
  }

#define POLYPATH_NVSHMEM_REDUCE(name, op)                                                        \
  POLYPATH_NVSHMEM_OF(G, nvshmem_##name##_##op##_reduce(NVSHMEM_TEAM_WORLD, to, from, count),    \
                      nvshmemx_##name##_##op##_reduce_warp(NVSHMEM_TEAM_WORLD, to, from, count), \
                      nvshmemx_##name##_##op##_reduce_block(NVSHMEM_TEAM_WORLD, to, from, count))
#define POLYPATH_NVSHMEM_ARITHMETIC(element, name, type)                                     \
  if constexpr (kElement == Element::element) {                                              \
    auto* const to = reinterpret_cast<type*>(recv);                                          \
    const auto* const from = reinterpret_cast<const type*>(send);                            \
    if constexpr (kOperator == ReductionOperator::SUM) POLYPATH_NVSHMEM_REDUCE(name, sum);   \
    if constexpr (kOperator == ReductionOperator::PROD) POLYPATH_NVSHMEM_REDUCE(name, prod); \
    if constexpr (kOperator == ReductionOperator::MIN) POLYPATH_NVSHMEM_REDUCE(name, min);   \
    if constexpr (kOperator == ReductionOperator::MAX) POLYPATH_NVSHMEM_REDUCE(name, max);   \
  }
#define POLYPATH_NVSHMEM_BITS(element, name, type)                                          \
  if constexpr (kElement == Element::element) {                                             \
    auto* const to = reinterpret_cast<type*>(recv);                                         \
    const auto* const from = reinterpret_cast<const type*>(send);                           \
    if constexpr (kOperator == ReductionOperator::BAND) POLYPATH_NVSHMEM_REDUCE(name, and); \
    if constexpr (kOperator == ReductionOperator::BOR) POLYPATH_NVSHMEM_REDUCE(name, or);   \
    if constexpr (kOperator == ReductionOperator::BXOR) POLYPATH_NVSHMEM_REDUCE(name, xor); \
  }
#define POLYPATH_NVSHMEM_INTEGER(element, name, type) \
  POLYPATH_NVSHMEM_ARITHMETIC(element, name, type)    \
  POLYPATH_NVSHMEM_BITS(element, name, type)

  template <ThreadGroup G, ReductionOperator kOperator, typename T>
  static POLYPATH_DEVICE void all_reduce([[maybe_unused]] const T* send, [[maybe_unused]] T* recv,
                                         [[maybe_unused]] std::size_t count) {
#if defined(__CUDA_ARCH__)
    constexpr Element kElement = kElementOf<T>;
    POLYPATH_NVSHMEM_INTEGER(int8, int8, std::int8_t)
    POLYPATH_NVSHMEM_INTEGER(uint8, uint8, std::uint8_t)
    POLYPATH_NVSHMEM_INTEGER(int16, int16, std::int16_t)
    POLYPATH_NVSHMEM_INTEGER(uint16, uint16, std::uint16_t)
    POLYPATH_NVSHMEM_INTEGER(int32, int32, std::int32_t)
    POLYPATH_NVSHMEM_INTEGER(uint32, uint32, std::uint32_t)
    POLYPATH_NVSHMEM_INTEGER(int64, int64, std::int64_t)
    POLYPATH_NVSHMEM_INTEGER(uint64, uint64, std::uint64_t)
    POLYPATH_NVSHMEM_ARITHMETIC(float16, half, half)
    POLYPATH_NVSHMEM_ARITHMETIC(bfloat16, bfloat16, __nv_bfloat16)
    POLYPATH_NVSHMEM_ARITHMETIC(float32, float, float)
    POLYPATH_NVSHMEM_ARITHMETIC(float64, double, double)
#endif
  }
#undef POLYPATH_NVSHMEM_INTEGER
#undef POLYPATH_NVSHMEM_BITS
#undef POLYPATH_NVSHMEM_ARITHMETIC
#undef POLYPATH_NVSHMEM_REDUCE

  /// Each rank combines a slice of neighbouring elements, and gives it to all, or to the root:
  /// no other rank reads it, so it may be in place.
  template <ThreadGroup G, ReductionOperator kOperator, typename T>
  static POLYPATH_DEVICE_NOINLINE void combine_slice(const T* send, T* recv, std::size_t count,
                                                     int root, const Comm* comm) {
    using Stored = typename StoredOf<kElementOf<T>>::Type;
    const GroupOf<G> group;
    const int ranks = size(comm);
    const auto all = static_cast<std::size_t>(ranks);
    const std::size_t share = (count + all - 1) / all;
    const std::size_t begin = share * static_cast<std::size_t>(rank(comm));
    const std::size_t end = begin + share < count ? begin + share : count;
    const Combine<kOperator, Stored> combine(ranks);
    for (std::size_t i = begin + group.rank(); i < end; i += group.size()) {
      auto sum = combine.widen(get<Stored>(send + i, 0));
      POLYPATH_UNICONN_NO_UNROLL
      for (int from = 1; from < ranks; ++from)
        sum = combine.combine(sum, combine.widen(get<Stored>(send + i, from)));
      const Stored result = combine.narrow(sum);
      POLYPATH_UNICONN_NO_UNROLL
      for (int to = root < 0 ? 0 : root; to < (root < 0 ? ranks : root + 1); ++to)
        give(recv + i, result, to);
    }
  }
  /// An element of another rank.
  template <typename Stored>
  static POLYPATH_DEVICE Stored get([[maybe_unused]] const void* at, [[maybe_unused]] int from) {
    Stored element{};
#if defined(__CUDA_ARCH__)
    const auto load = [&](auto bits) { memcpy(&element, &bits, sizeof element); };
    if constexpr (sizeof(Stored) == 1)
      load(nvshmem_uint8_g(static_cast<const std::uint8_t*>(at), from));
    if constexpr (sizeof(Stored) == 2)
      load(nvshmem_uint16_g(static_cast<const std::uint16_t*>(at), from));
    if constexpr (sizeof(Stored) == 4)
      load(nvshmem_uint32_g(static_cast<const std::uint32_t*>(at), from));
    if constexpr (sizeof(Stored) == 8)
      load(nvshmem_uint64_g(static_cast<const std::uint64_t*>(at), from));
#endif
    return element;
  }
  template <typename Stored>
  static POLYPATH_DEVICE void give([[maybe_unused]] void* at,
                                   [[maybe_unused]] const Stored& element,
                                   [[maybe_unused]] int to) {
#if defined(__CUDA_ARCH__)
    const auto bits = [&](auto as) {
      memcpy(&as, &element, sizeof as);
      return as;
    };
    if constexpr (sizeof(Stored) == 1)
      nvshmem_uint8_p(static_cast<std::uint8_t*>(at), bits(std::uint8_t{}), to);
    if constexpr (sizeof(Stored) == 2)
      nvshmem_uint16_p(static_cast<std::uint16_t*>(at), bits(std::uint16_t{}), to);
    if constexpr (sizeof(Stored) == 4)
      nvshmem_uint32_p(static_cast<std::uint32_t*>(at), bits(std::uint32_t{}), to);
    if constexpr (sizeof(Stored) == 8)
      nvshmem_uint64_p(static_cast<std::uint64_t*>(at), bits(std::uint64_t{}), to);
#endif
  }
};

/// Functions of NVSHMEM linked into the program that the backend calls. The backend itself finds
/// NVSHMEM's host library at run time.
inline const NvshmemProgramSymbols nvshmem_functions{
    [](unsigned flags, void* attributes) {
      int provided = 0;
      return nvshmemi_init_thread(NVSHMEM_THREAD_SERIALIZED, &provided, flags,
                                  static_cast<nvshmemx_init_attr_t*>(attributes),
                                  {NVSHMEM_VENDOR_MAJOR_VERSION, NVSHMEM_VENDOR_MINOR_VERSION,
                                   NVSHMEM_VENDOR_PATCH_VERSION});
    },
    [] { nvshmemi_finalize(); },
    [](const void* kernel, const unsigned* grid, const unsigned* block, void** args,
       std::size_t shared_bytes, CUstream_st* stream) {
      return nvshmemx_collective_launch(kernel, dim3(grid[0], grid[1], grid[2]),
                                        dim3(block[0], block[1], block[2]), args, shared_bytes,
                                        stream);
    }};
inline const bool nvshmem_functions_are_set = (nvshmem_of_program = &nvshmem_functions, true);

}  // namespace polypath::uniconn::detail

#undef POLYPATH_NVSHMEM_OF
