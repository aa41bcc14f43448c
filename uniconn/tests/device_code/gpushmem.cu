// Kernels over NVSHMEM: each by UNICONN, and, with -DNATIVE=1, by NVSHMEM alone.
// check_device_code.py compiles both, and compares. Without what NVSHMEM has nothing like:
// AlltoAllv, averages, reductions to one rank.
#include <nvshmem.h>
#include <nvshmemx.h>

#include "outlined.cuh"

#include "kernels.cuh"

#if NATIVE

struct Comm;

/// One of NVSHMEM's three names for a call.
#define OF(thread_call, warp_call, block_call)           \
  do {                                                   \
    if constexpr (G == ThreadGroup::THREAD) thread_call; \
    if constexpr (G == ThreadGroup::WARP) warp_call;     \
    if constexpr (G == ThreadGroup::BLOCK) block_call;   \
  } while (false)

namespace {

template <ThreadGroup G>
__device__ __forceinline__ void sync() {
  OF(, __syncwarp(), __syncthreads());
}
template <ThreadGroup G>
__device__ __forceinline__ unsigned rank_in() {
  unsigned rank = 0;
  if constexpr (G == ThreadGroup::WARP) asm("mov.u32 %0, %%laneid;" : "=r"(rank));
  if constexpr (G == ThreadGroup::BLOCK)
    rank = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  return rank;
}
template <ThreadGroup G>
__device__ __forceinline__ bool leads() {
  return rank_in<G>() == 0;
}

#if defined(__CUDA_ARCH__)  // NVSHMEM declares these for the device alone
template <ThreadGroup G>
__device__ __forceinline__ void barrier() {
  OF(nvshmem_barrier_all(), nvshmemx_barrier_all_warp(), nvshmemx_barrier_all_block());
}
template <ThreadGroup G>
__device__ __forceinline__ void put_bytes(void* to, const void* from, size_t bytes, int pe) {
  OF(nvshmem_putmem_nbi(to, from, bytes, pe), nvshmemx_putmem_nbi_warp(to, from, bytes, pe),
     nvshmemx_putmem_nbi_block(to, from, bytes, pe));
}
template <ThreadGroup G>
__device__ __forceinline__ void put(float* to, const float* from, size_t count, int pe) {
  put_bytes<G>(to, from, count * sizeof *from, pe);
}
template <ThreadGroup G>
__device__ __forceinline__ void put_to_all(float* to, const float* from, size_t count) {
  const size_t bytes = count * sizeof *from;
#pragma unroll 1
  for (int pe = 0; pe < nvshmem_n_pes(); ++pe) put_bytes<G>(to, from, bytes, pe);
}
template <typename Call>
__device__ __forceinline__ void for_each_pe(const Call& call) {
  const int own = nvshmem_my_pe();
  const int size = nvshmem_n_pes();
#pragma unroll 1
  for (int step = 0; step < size; ++step) call(own + step < size ? own + step : own + step - size);
}
#define NATIVELY(...) __VA_ARGS__
#else
#define NATIVELY(...)
#endif

}  // namespace

#else

#include "polypath/uniconn/device/gpushmem.cuh"
using Comm = polypath::uniconn::Communicator<polypath::uniconn::GpushmemBackend>;
using It = polypath::uniconn::Coordinator<polypath::uniconn::GpushmemBackend>;
#define NATIVELY(...)

#endif

#define BYTES count * sizeof *send
#define WORLD NVSHMEM_TEAM_WORLD

KERNELS(post, (It::Post<G>(send, recv, count, signal, value, rank, comm)),
        NATIVELY(OF(nvshmem_putmem_signal_nbi(recv, send, BYTES, signal, value, NVSHMEM_SIGNAL_SET,
                                              rank),
                    nvshmemx_putmem_signal_nbi_warp(recv, send, BYTES, signal, value,
                                                    NVSHMEM_SIGNAL_SET, rank),
                    nvshmemx_putmem_signal_nbi_block(recv, send, BYTES, signal, value,
                                                     NVSHMEM_SIGNAL_SET, rank))))
KERNELS(post_data, (It::Post<G>(send, recv, count, nullptr, 0, rank, comm)),
        NATIVELY(put<G>(recv, send, count, rank)))
KERNELS(acknowledge, (It::Acknowledge<G>(recv, count, signal, value, rank, comm)),
        NATIVELY(if (leads<G>()) nvshmem_signal_wait_until(signal, NVSHMEM_CMP_GE, value);
                 sync<G>()))
KERNELS(barrier, (It::Barrier<G>(comm)), NATIVELY(barrier<G>()))
KERNELS(wait, (It::Wait<G>(comm)), NATIVELY(sync<G>(); if (leads<G>()) nvshmem_quiet(); sync<G>()))
KERNELS(rank_and_size, (*result = It::Rank(comm) + It::Size(comm)),
        NATIVELY(*result = nvshmem_my_pe() + nvshmem_n_pes()))

KERNELS(all_gather, (It::AllGather<G>(send, recv, count, comm)),
        NATIVELY(const size_t bytes = BYTES; barrier<G>();
                 OF(nvshmem_fcollectmem(WORLD, recv, send, bytes),
                    nvshmemx_fcollectmem_warp(WORLD, recv, send, bytes),
                    nvshmemx_fcollectmem_block(WORLD, recv, send, bytes))))
KERNELS(all_to_all, (It::AlltoAll<G>(send, recv, count, comm)),
        NATIVELY(const size_t bytes = BYTES; barrier<G>();
                 OF(nvshmem_alltoallmem(WORLD, recv, send, bytes),
                    nvshmemx_alltoallmem_warp(WORLD, recv, send, bytes),
                    nvshmemx_alltoallmem_block(WORLD, recv, send, bytes))))
KERNELS(broadcast, (It::Broadcast<G>(recv, count, rank, comm)),
        NATIVELY(const size_t bytes = BYTES; barrier<G>();
                 OF(nvshmem_broadcastmem(WORLD, recv, recv, bytes, rank),
                    nvshmemx_broadcastmem_warp(WORLD, recv, recv, bytes, rank),
                    nvshmemx_broadcastmem_block(WORLD, recv, recv, bytes, rank))))
KERNELS(sum, (It::AllReduce<G, ReductionOperator::SUM>(send, recv, count, comm)),
        NATIVELY(barrier<G>(); OF(nvshmem_float_sum_reduce(WORLD, recv, send, count),
                                  nvshmemx_float_sum_reduce_warp(WORLD, recv, send, count),
                                  nvshmemx_float_sum_reduce_block(WORLD, recv, send, count))))
KERNELS(max_in_place,
        (It::AllReduce<G, ReductionOperator::MAX>(reinterpret_cast<double*>(recv), count, comm)),
        NATIVELY(barrier<G>(); auto* const words = reinterpret_cast<double*>(recv);
                 OF(nvshmem_double_max_reduce(WORLD, words, words, count),
                    nvshmemx_double_max_reduce_warp(WORLD, words, words, count),
                    nvshmemx_double_max_reduce_block(WORLD, words, words, count))))

KERNELS(gather, (It::Gather<G>(send, recv, count, rank, comm)),
        NATIVELY(barrier<G>(); put<G>(recv + nvshmem_my_pe() * count, send, count, rank);
                 barrier<G>()))
KERNELS(gatherv, (It::Gatherv<G>(send, recv, counts, displs, rank, comm)),
        NATIVELY(const int own = nvshmem_my_pe(); barrier<G>();
                 put<G>(recv + displs[own], send, counts[own], rank); barrier<G>()))
KERNELS(all_gather_in_place, (It::AllGather<G>(recv, count, comm)),
        NATIVELY(float* const slot = recv + nvshmem_my_pe() * count; barrier<G>();
                 put_to_all<G>(slot, slot, count); barrier<G>()))
KERNELS(all_gatherv, (It::AllGatherv<G>(send, recv, counts, displs, comm)),
        NATIVELY(const int own = nvshmem_my_pe(); barrier<G>();
                 put_to_all<G>(recv + displs[own], send, counts[own]); barrier<G>()))
KERNELS(scatter, (It::Scatter<G>(send, recv, count, rank, comm)),
        NATIVELY(barrier<G>(); if (nvshmem_my_pe() == rank)
                     for_each_pe([&](int to) { put<G>(recv, send + to * count, count, to); });
                 barrier<G>()))
KERNELS(scatterv, (It::Scatterv<G>(send, recv, counts, displs, rank, comm)),
        NATIVELY(barrier<G>(); if (nvshmem_my_pe() == rank)
                     for_each_pe([&](int to) { put<G>(recv, send + displs[to], counts[to], to); });
                 barrier<G>()))
KERNEL(mutant, BLOCK, (It::Barrier<G>(comm), *result = 1), NATIVELY(barrier<G>()))
