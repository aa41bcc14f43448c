// Kernels over NCCL: each by UNICONN, and, with -DNATIVE=1, as a program writes them that has the
// other ranks' addresses from NCCL, polypath's functions for loads and stores, and no UNICONN.
// check_device_code.py compiles both, and compares.
#include <nccl_device.h>

#include "kernels.cuh"
#include "polypath/device/tile.cuh"
#include "polypath/device/wait.cuh"

#if NATIVE

namespace {

namespace device = polypath::device;

constexpr int kRanks = 8;

/// What the program's host writes into memory of the GPU.
struct alignas(16) Comm {
  int rank;
  int size;
  uint64_t* signals;
  uint64_t shift[kRanks];
  ncclDevComm nccl;
};

template <ThreadGroup G>
struct GroupFor {
  using Type = device::this_block;
};
template <>
struct GroupFor<ThreadGroup::THREAD> {
  using Type = device::this_thread;
};
template <>
struct GroupFor<ThreadGroup::WARP> {
  using Type = device::this_warp;
};

/// As NCCL's templates want a group, for blocks of any dimensions.
template <ThreadGroup G>
struct Coop {
  typename GroupFor<G>::Type group;
  __device__ __forceinline__ int thread_rank() const { return static_cast<int>(group.rank()); }
  __device__ __forceinline__ int size() const { return static_cast<int>(group.size()); }
  __device__ __forceinline__ int num_threads() const { return size(); }
  __device__ __forceinline__ void sync() const { group.sync(); }
};

__device__ __forceinline__ int rank_of(const Comm* comm) { return comm->rank; }
__device__ __forceinline__ float* part(float* parts, int rank, size_t count) {
  return parts + static_cast<size_t>(rank) * count;
}
template <typename T>
__device__ __forceinline__ T* there(T* address, int rank, const Comm* comm) {
  return reinterpret_cast<T*>(reinterpret_cast<uint64_t>(address) + comm->shift[rank]);
}
template <ThreadGroup G>
__device__ __forceinline__ void barrier(const Comm* comm) {
  const Coop<G> group;
  ncclLsaBarrierSession<Coop<G>> session(group, comm->nccl, ncclTeamTagLsa(), 0);
  session.sync(group, cuda::memory_order_acq_rel);
}
template <ThreadGroup G, int kMaxPointers>
__device__ __forceinline__ void copy(const device::pointer_list<unsigned char, kMaxPointers>& to,
                                     const void* from, size_t bytes) {
  const typename GroupFor<G>::Type group;
  group.sync();
  device::copy_tile<device::tile_access::streaming, device::tile_access::streaming,
                    kMaxPointers == 1 ? 4 : 2>(group, to, static_cast<const unsigned char*>(from),
                                               bytes);
  group.sync();
}
template <ThreadGroup G>
__device__ __forceinline__ void put(void* to, const void* from, size_t bytes, int rank,
                                    const Comm* comm) {
  copy<G, 1>({{there(static_cast<unsigned char*>(to), rank, comm)}, 1}, from, bytes);
}
__device__ __forceinline__ device::pointer_list<unsigned char, kRanks> everywhere(
    unsigned char* to, const Comm* comm) {
  device::pointer_list<unsigned char, kRanks> all;
  all.count = comm->size;
#pragma unroll
  for (int r = 0; r < kRanks; ++r)
    if (r < all.count) all.at[r] = there(to, r, comm);
  return all;
}
template <ThreadGroup G>
__device__ __forceinline__ void put_to_all(void* to, const void* from, size_t bytes,
                                           const Comm* comm) {
  copy<G, kRanks>(everywhere(static_cast<unsigned char*>(to), comm), from, bytes);
}
template <typename Call>
__device__ __forceinline__ void for_each_rank(const Comm* comm, const Call& call) {
  const int own = comm->rank;
  const int size = comm->size;
#pragma unroll 1
  for (int step = 0; step < size; ++step) call(own + step < size ? own + step : own + step - size);
}

}  // namespace

#else

#include "polypath/uniconn/device/gpuccl.cuh"
using Comm = polypath::uniconn::Communicator<polypath::uniconn::GpucclBackend>;
using It = polypath::uniconn::Coordinator<polypath::uniconn::GpucclBackend>;

#endif

#define BYTES count * sizeof *send

KERNELS(post, (It::Post<G>(send, recv, count, signal, value, rank, comm)),
        put<G>(recv, send, BYTES, rank, comm);
        if (typename GroupFor<G>::Type().is_leader())
            device::store_release(there(signal, rank, comm), value))
KERNELS(post_data, (It::Post<G>(send, recv, count, nullptr, 0, rank, comm)),
        (put<G>(recv, send, BYTES, rank, comm)))
KERNELS(acknowledge, (It::Acknowledge<G>(recv, count, signal, value, rank, comm)),
        const typename GroupFor<G>::Type group;
        if (group.is_leader()) while (static_cast<int64_t>(device::load_acquire(signal) - value) <
                                      0) device::spin_pause();
        group.sync())
KERNELS(barrier, (It::Barrier<G>(comm)), barrier<G>(comm))
KERNELS(wait, (It::Wait<G>(comm)), device::fence_sys(); typename GroupFor<G>::Type().sync())
KERNELS(all_gather, (It::AllGather<G>(send, recv, count, comm)),
        float* const slot = recv + comm->rank * count;
        barrier<G>(comm); put_to_all<G>(slot, send, BYTES, comm); barrier<G>(comm))
KERNELS(all_gather_in_place, (It::AllGather<G>(recv, count, comm)),
        float* const slot = recv + comm->rank * count;
        barrier<G>(comm); put_to_all<G>(slot, slot, BYTES, comm); barrier<G>(comm))
KERNELS(broadcast, (It::Broadcast<G>(recv, count, rank, comm)), barrier<G>(comm);
        if (comm->rank == rank) put_to_all<G>(recv, recv, BYTES, comm); barrier<G>(comm))
// By one thread it differs in the place of an addition.
KERNEL(gather, WARP, (It::Gather<G>(send, recv, count, rank, comm)), barrier<G>(comm);
       put<G>(part(recv, rank_of(comm), count), send, BYTES, rank, comm); barrier<G>(comm))
KERNEL(gather, BLOCK, (It::Gather<G>(send, recv, count, rank, comm)), barrier<G>(comm);
       put<G>(part(recv, rank_of(comm), count), send, BYTES, rank, comm); barrier<G>(comm))
KERNELS(scatter, (It::Scatter<G>(send, recv, count, rank, comm)), barrier<G>(comm);
        if (comm->rank == rank)
            for_each_rank(comm, [&](int to) { put<G>(recv, send + to * count, BYTES, to, comm); });
        barrier<G>(comm))
KERNELS(all_to_all, (It::AlltoAll<G>(send, recv, count, comm)), barrier<G>(comm);
        for_each_rank(comm,
                      [&](int to) {
                        const float* const from = send + to * count;
                        put<G>(recv + comm->rank * count, from, BYTES, to, comm);
                      });
        barrier<G>(comm))

KERNEL(mutant, BLOCK, (It::Barrier<G>(comm), *result = 1), barrier<G>(comm))
