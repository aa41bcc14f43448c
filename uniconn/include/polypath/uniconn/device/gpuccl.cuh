// GpucclBackend in kernels: stores into the other ranks' windows, which NCCL's LSA makes
// addressable, and NCCL's barrier. For programs with NCCL's headers, 2.28 or newer, the same
// version as the library that is found at run time; without -rdc, and nothing to link. CUDA C++17.
//
// Ranks are those of a communicator whose GPUs all reach each other's memory, eight at most;
// what is posted to is from Memory. Waits end when what they wait for comes, and not before: NCCL
// has no time limit.
#pragma once

#include <nccl_device.h>

#include "polypath/device/tile.cuh"
#include "polypath/device/wait.cuh"
#include "polypath/uniconn/device/combine.cuh"
#include "polypath/uniconn/device/gpuccl_view.hpp"
#include "polypath/uniconn/device/groups.cuh"
#include "polypath/uniconn/device/host_types.hpp"
#include "polypath/uniconn/device/program_symbols.hpp"
#include "polypath/uniconn/device_calls.hpp"
#if __cplusplus >= 202002L
#include "polypath/uniconn/backend/gpuccl.hpp"
#endif

namespace polypath::uniconn::detail {

/// A group as NCCL's templates want one; its own ones are of blocks of one dimension.
template <ThreadGroup G>
struct NcclCoop {
  POLYPATH_DEVICE int thread_rank() const { return static_cast<int>(GroupOf<G>().rank()); }
  POLYPATH_DEVICE int size() const { return static_cast<int>(GroupOf<G>().size()); }
  POLYPATH_DEVICE int num_threads() const { return size(); }
  POLYPATH_DEVICE void sync() const { GroupOf<G>().sync(); }
};

template <>
struct DeviceVerbs<GpucclBackend> {
  using Comm = Communicator<GpucclBackend>;
  static constexpr bool kGathersAll = false;
  static constexpr bool kBroadcasts = false;
  static constexpr bool kExchangesAll = false;

  static POLYPATH_DEVICE int rank(const Comm* comm) { return view(comm)->rank; }
  static POLYPATH_DEVICE int size(const Comm* comm) { return view(comm)->size; }
  static POLYPATH_DEVICE std::size_t count_at(const std::size_t* list, int rank) {
    return list[rank];
  }

  template <ThreadGroup G>
  static POLYPATH_DEVICE void post(const void* src, void* dest, std::size_t bytes,
                                   std::uint64_t* signal, std::uint64_t value, int to,
                                   const Comm* comm) {
    put<G>(src, dest, bytes, to, comm);
    if (GroupOf<G>().is_leader()) device::store_release(on_rank(comm, signal, to), value);
  }
  template <ThreadGroup G>
  static POLYPATH_DEVICE void put(const void* src, void* dest, std::size_t bytes, int to,
                                  const Comm* comm) {
    copy<G, 1>({{on_rank(comm, static_cast<Bytes*>(dest), to)}, 1}, src, bytes);
  }
  template <ThreadGroup G>
  static POLYPATH_DEVICE void put_to_all(const void* src, void* dest, std::size_t bytes,
                                         const Comm* comm) {
    copy<G, kMaxDeviceRanks>(on_all(comm, static_cast<Bytes*>(dest)), src, bytes);
  }

  template <ThreadGroup G>
  static POLYPATH_DEVICE void acknowledge(const std::uint64_t* signal, std::uint64_t value, int,
                                          const Comm*) {
    const GroupOf<G> group;
    if (group.is_leader())
      while (!device::has_come(device::load_acquire(signal), value)) device::spin_pause();
    group.sync();
  }
  template <ThreadGroup G>
  static POLYPATH_DEVICE void barrier(const Comm* comm) {
    const NcclCoop<G> group;
    ncclLsaBarrierSession<NcclCoop<G>> session(group, nccl(comm), ncclTeamTagLsa(), 0);
    session.sync(group, cuda::memory_order_acq_rel);
  }
  template <ThreadGroup G>
  static POLYPATH_DEVICE void wait(const Comm*) {
    device::fence_sys();
    GroupOf<G>().sync();
  }

  template <ThreadGroup G>
  static POLYPATH_DEVICE void tell(int to, std::uint64_t value, const Comm* comm) {
    if (GroupOf<G>().is_leader())
      device::store_relaxed(on_rank(comm, view(comm)->signals + rank(comm), to), value);
  }
  static POLYPATH_DEVICE std::uint64_t signal_from(int from, const Comm* comm) {
    return device::load_relaxed(view(comm)->signals + from);
  }

  /// Each rank combines a slice, reads it where the ranks have it, in rank order, and stores it
  /// at its destination. In place, too: no other rank reads that slice.
  template <ThreadGroup G, ReductionOperator kOperator, typename T>
  static POLYPATH_DEVICE void reduce(const T* send, T* recv, std::size_t count, int root,
                                     const Comm* comm) {
    using Stored = typename StoredOf<kElementOf<T>>::Type;
    constexpr std::size_t kGranule = 64;  // elements: slices begin as the buffer does, modulo 16
    barrier<G>(comm);
    const auto ranks = static_cast<std::size_t>(size(comm));
    const std::size_t share = ((count + ranks - 1) / ranks + kGranule - 1) / kGranule * kGranule;
    const std::size_t begin = static_cast<std::size_t>(rank(comm)) * share;
    if (begin < count) {
      auto* const target = reinterpret_cast<Stored*>(recv) + begin;
      device::pointer_list<Stored, kMaxDeviceRanks> to;
      if (root < 0) {
        to = on_all(comm, target);
      } else {
        to.count = 1;
        to.at[0] = on_rank(comm, target, root);
      }
      device::reduce_tile(GroupOf<G>(), Combine<kOperator, Stored>(size(comm)), to,
                          on_all(comm, reinterpret_cast<const Stored*>(send) + begin),
                          count - begin < share ? count - begin : share);
    }
    barrier<G>(comm);
  }

 private:
  using Bytes = unsigned char;

  static POLYPATH_DEVICE const GpucclView* view(const Comm* comm) {
    return reinterpret_cast<const GpucclView*>(comm);
  }
  static POLYPATH_DEVICE const ncclDevComm& nccl(const Comm* comm) {
    return *reinterpret_cast<const ncclDevComm*>(view(comm) + 1);
  }
  template <typename T>
  static POLYPATH_DEVICE T* on_rank(const Comm* comm, T* address, int rank) {
    return reinterpret_cast<T*>(reinterpret_cast<std::uint64_t>(address) + view(comm)->shift[rank]);
  }
  template <typename T>
  static POLYPATH_DEVICE device::pointer_list<T, kMaxDeviceRanks> on_all(const Comm* comm,
                                                                         T* address) {
    device::pointer_list<T, kMaxDeviceRanks> all;
    all.count = size(comm);
    POLYPATH_UNROLL
    for (int r = 0; r < kMaxDeviceRanks; ++r)
      if (r < all.count) all.at[r] = on_rank(comm, address, r);
    return all;
  }
  template <ThreadGroup G, int kMaxPointers>
  static POLYPATH_DEVICE void copy(const device::pointer_list<Bytes, kMaxPointers>& to,
                                   const void* from, std::size_t bytes) {
    constexpr int kInFlight = kMaxPointers == 1 ? 4 : 2;  // registers are the program's
    const GroupOf<G> group;
    group.sync();
    device::copy_tile<device::tile_access::streaming, device::tile_access::streaming, kInFlight>(
        group, to, static_cast<const Bytes*>(from), bytes);
    group.sync();
  }
};

/// NCCL's structures, for the backend, which knows none of its headers.
inline const NcclProgramSymbols nccl_structures{
    NCCL_VERSION_CODE,
    sizeof(ncclDevComm),
    sizeof(ncclWindow_vidmem),
    [](void* function, void* comm, void* device_comm) {
      ncclDevCommRequirements requirements{};
      requirements.lsaBarrierCount = 1;
      const auto create = reinterpret_cast<decltype(&ncclDevCommCreate)>(function);
      return static_cast<int>(create(static_cast<ncclComm_t>(comm), &requirements,
                                     static_cast<ncclDevComm*>(device_comm)));
    },
    [](const void* device_comm) { return static_cast<const ncclDevComm*>(device_comm)->lsaSize; },
    [](const void* window) {
      const auto& region = *static_cast<const ncclWindow_vidmem*>(window);
      return static_cast<void*>(region.lsaFlatBase +
                                region.lsaRank * (std::uint64_t{region.stride4G} << 32));
    },
    [](const void* window) {
      return std::uint64_t{static_cast<const ncclWindow_vidmem*>(window)->stride4G} << 32;
    }};
inline const bool nccl_structures_are_set = (nccl_of_program = &nccl_structures, true);

}  // namespace polypath::uniconn::detail
