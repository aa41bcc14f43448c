// What kernels call: the device side of the Coordinator. C++17.
//
// Calls are of one thread, of a warp or of a block: all its threads make the call together, with
// the same arguments (docs/uniconn.md). What each becomes is in the device header of the backend,
// which the program includes: device/polypath.cuh.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "polypath/uniconn/device/mutants.hpp"
#include "polypath/uniconn/enums.hpp"

#if defined(__CUDACC__)
#define POLYPATH_UNICONN_DEVICE __device__ __forceinline__
#define POLYPATH_UNICONN_ANYWHERE __host__ __device__
#define POLYPATH_UNICONN_NO_UNROLL _Pragma("unroll 1")
#else
#define POLYPATH_UNICONN_DEVICE inline
#define POLYPATH_UNICONN_ANYWHERE
#define POLYPATH_UNICONN_NO_UNROLL
#endif

namespace polypath::uniconn {
namespace detail {

/// What a backend does for kernels, in static functions of a specialisation. `Comm` is what
/// toDevice() gave; G is the group that calls; ranks are the communicator's.
///
///   rank(comm), size(comm)
///   post<G>(src, dest, bytes, signal, value, to, comm)
///   acknowledge<G>(signal, value, from, comm)
///   barrier<G>(comm)     of all ranks, one group of each; after it all that was put is there
///   wait<G>(comm)        what this group posted is there, and its sources may be overwritten
///   put<G>(src, dest, bytes, to, comm)       without a signal, and of no sure end before a barrier
///   put_to_all<G>(src, dest, bytes, comm)
///   tell<G>(r, value, comm)   a number for rank r;  signal_from(r, comm)   after a barrier, r's
///   count_at(list, r)    an element of a list of the program
///   reduce<G, Operator>(send, recv, count, root, comm)   to all for a negative root
///
/// kGathersAll, kBroadcasts, kExchangesAll: it has all_gather<G>(send, recv, bytes, comm),
/// broadcast<G>(buf, bytes, root, comm) and all_to_all<G>(send, recv, bytes, comm) of its own; what
/// it has not is composed of the others.
template <typename B>
struct DeviceVerbs;

}  // namespace detail

template <typename B>
class DeviceCalls {
  using Verbs = detail::DeviceVerbs<B>;

 public:
  /// Sends to `dest` on `dest_rank`; after it the word `signal` there is `value`. What the group's
  /// threads stored before the call is sent.
  template <ThreadGroup G, typename T, typename Comm>
  static POLYPATH_UNICONN_DEVICE void Post(const T* src, T* dest, std::size_t count,
                                           std::uint64_t* signal, std::uint64_t value,
                                           int dest_rank, Comm* comm) {
    static_assert(std::is_trivially_copyable_v<T>);
    Verbs::template post<G>(src, dest, count * sizeof(T), signal, value, dest_rank, comm);
  }
  /// nullptr for the signal: the data alone, which the receiver is told of after the kernel
  /// (PartialDevice).
  template <ThreadGroup G, typename T, typename Comm>
  static POLYPATH_UNICONN_DEVICE void Post(const T* src, T* dest, std::size_t count, std::nullptr_t,
                                           std::uint64_t, int dest_rank, Comm* comm) {
    static_assert(std::is_trivially_copyable_v<T>);
    Verbs::template put<G>(src, dest, count * sizeof(T), dest_rank, comm);
  }
  /// Waits until the word is `value` or past it; then all threads of the group find in `dest` what
  /// `src_rank` posted with that.
  template <ThreadGroup G, typename T, typename Comm>
  static POLYPATH_UNICONN_DEVICE void Acknowledge(T*, std::size_t, std::uint64_t* signal,
                                                  std::uint64_t value, int src_rank, Comm* comm) {
    Verbs::template acknowledge<G>(signal, value, src_rank, comm);
  }
  /// Waits for one group of each rank: all that they stored, and what was posted, is there then.
  template <ThreadGroup G, typename Comm>
  static POLYPATH_UNICONN_DEVICE void Barrier(Comm* comm) {
    Verbs::template barrier<G>(comm);
  }
  /// What this group posted is there, and its sources may be overwritten.
  template <ThreadGroup G, typename Comm>
  static POLYPATH_UNICONN_DEVICE void Wait(Comm* comm) {
    Verbs::template wait<G>(comm);
  }
  template <typename Comm>
  static POLYPATH_UNICONN_DEVICE int Rank(const Comm* comm) {
    return Verbs::rank(comm);
  }
  template <typename Comm>
  static POLYPATH_UNICONN_DEVICE int Size(const Comm* comm) {
    return Verbs::size(comm);
  }

  // ---- Collectives: one group of each rank, in the same order ---------------------------------
  // Arguments are as on the host. Each begins with a barrier: memory of all is free; what a rank
  // gets is there when its call returns, and what it gave may be overwritten.

  template <ThreadGroup G, typename T, typename Comm>
  static POLYPATH_UNICONN_DEVICE void AllGather(const T* send, T* recv, std::size_t count,
                                                Comm* comm) {
    static_assert(std::is_trivially_copyable_v<T>);
    if constexpr (Verbs::kGathersAll) {
      Verbs::template all_gather<G>(send, recv, count * sizeof(T), comm);
    } else {
      put_slot<G>(send, part(recv, own_slot(comm), count), count, comm);
    }
  }
  /// No library has it in place.
  template <ThreadGroup G, typename T, typename Comm>
  static POLYPATH_UNICONN_DEVICE void AllGather(T* buf, std::size_t count, Comm* comm) {
    static_assert(std::is_trivially_copyable_v<T>);
    T* const slot = part(buf, own_slot(comm), count);
    put_slot<G>(slot, slot, count, comm);
  }
  template <ThreadGroup G, typename T, typename Comm>
  static POLYPATH_UNICONN_DEVICE void AllGatherv(const T* send, T* recv, const std::size_t* counts,
                                                 const std::size_t* displs, Comm* comm) {
    static_assert(std::is_trivially_copyable_v<T>);
    const int own = Rank(comm);
    between_barriers<G>(comm, [&] {
      Verbs::template put_to_all<G>(send, recv + Verbs::count_at(displs, own),
                                    Verbs::count_at(counts, own) * sizeof(T), comm);
    });
  }
  template <ThreadGroup G, typename T, typename Comm>
  static POLYPATH_UNICONN_DEVICE void AllGatherv(T* buf, const std::size_t* counts,
                                                 const std::size_t* displs, Comm* comm) {
    const T* const send = buf + Verbs::count_at(displs, Rank(comm));
    AllGatherv<G>(send, buf, counts, displs, comm);
  }

  /// `send` is from Memory, too.
  template <ThreadGroup G, ReductionOperator Operator, typename T, typename Comm>
  static POLYPATH_UNICONN_DEVICE void AllReduce(const T* send, T* recv, std::size_t count,
                                                Comm* comm) {
    static_assert(kIsReducible<T, Operator>);
    Verbs::template reduce<G, Operator>(send, recv, count, -1, comm);
  }
  template <ThreadGroup G, ReductionOperator Operator, typename T, typename Comm>
  static POLYPATH_UNICONN_DEVICE void AllReduce(T* buf, std::size_t count, Comm* comm) {
    AllReduce<G, Operator>(static_cast<const T*>(buf), buf, count, comm);
  }
  template <ThreadGroup G, ReductionOperator Operator, typename T, typename Comm>
  static POLYPATH_UNICONN_DEVICE void Reduce(const T* send, T* recv, std::size_t count, int root,
                                             Comm* comm) {
    static_assert(kIsReducible<T, Operator>);
    Verbs::template reduce<G, Operator>(send, recv, count, root, comm);
  }
  template <ThreadGroup G, ReductionOperator Operator, typename T, typename Comm>
  static POLYPATH_UNICONN_DEVICE void Reduce(T* buf, std::size_t count, int root, Comm* comm) {
    Reduce<G, Operator>(static_cast<const T*>(buf), buf, count, root, comm);
  }

  template <ThreadGroup G, typename T, typename Comm>
  static POLYPATH_UNICONN_DEVICE void AlltoAll(const T* send, T* recv, std::size_t count,
                                               Comm* comm) {
    static_assert(std::is_trivially_copyable_v<T>);
    if constexpr (Verbs::kExchangesAll) {
      Verbs::template all_to_all<G>(send, recv, count * sizeof(T), comm);
    } else {
      between_barriers<G>(comm, [&] {
        for_each_rank(comm, [&](int to) {
          Verbs::template put<G>(part(send, to, count), part(recv, own_slot(comm), count),
                                 count * sizeof(T), to, comm);
        });
      });
    }
  }
  /// Ranks tell each other where parts go.
  template <ThreadGroup G, typename T, typename Comm>
  static POLYPATH_UNICONN_DEVICE void AlltoAllv(const T* send, const std::size_t* scounts,
                                                const std::size_t* sdispls, T* recv,
                                                const std::size_t*, const std::size_t* rdispls,
                                                Comm* comm) {
    static_assert(std::is_trivially_copyable_v<T>);
    POLYPATH_UNICONN_NO_UNROLL
    for (int r = 0; r < Size(comm); ++r)
      Verbs::template tell<G>(r, Verbs::count_at(rdispls, r), comm);
    between_barriers<G>(comm, [&] {
      for_each_rank(comm, [&](int to) {
        Verbs::template put<G>(send + Verbs::count_at(sdispls, to),
                               recv + Verbs::signal_from(to, comm),
                               Verbs::count_at(scounts, to) * sizeof(T), to, comm);
      });
    });
  }

  template <ThreadGroup G, typename T, typename Comm>
  static POLYPATH_UNICONN_DEVICE void Broadcast(T* buf, std::size_t count, int root, Comm* comm) {
    static_assert(std::is_trivially_copyable_v<T>);
    if constexpr (Verbs::kBroadcasts) {
      Verbs::template broadcast<G>(buf, count * sizeof(T), root, comm);
    } else {
      between_barriers<G>(comm, [&] {
        if (Rank(comm) == root) Verbs::template put_to_all<G>(buf, buf, count * sizeof(T), comm);
      });
    }
  }

  template <ThreadGroup G, typename T, typename Comm>
  static POLYPATH_UNICONN_DEVICE void Gather(const T* send, T* recv, std::size_t count, int root,
                                             Comm* comm) {
    static_assert(std::is_trivially_copyable_v<T>);
    between_barriers<G>(comm, [&] {
      Verbs::template put<G>(send, part(recv, own_slot(comm), count), count * sizeof(T), root,
                             comm);
    });
  }
  template <ThreadGroup G, typename T, typename Comm>
  static POLYPATH_UNICONN_DEVICE void Gather(T* buf, std::size_t count, int root, Comm* comm) {
    Gather<G>(static_cast<const T*>(part(buf, Rank(comm), count)), buf, count, root, comm);
  }
  template <ThreadGroup G, typename T, typename Comm>
  static POLYPATH_UNICONN_DEVICE void Gatherv(const T* send, T* recv, const std::size_t* counts,
                                              const std::size_t* displs, int root, Comm* comm) {
    static_assert(std::is_trivially_copyable_v<T>);
    const int own = Rank(comm);
    between_barriers<G>(comm, [&] {
      Verbs::template put<G>(send, recv + Verbs::count_at(displs, own),
                             Verbs::count_at(counts, own) * sizeof(T), root, comm);
    });
  }
  template <ThreadGroup G, typename T, typename Comm>
  static POLYPATH_UNICONN_DEVICE void Gatherv(T* buf, const std::size_t* counts,
                                              const std::size_t* displs, int root, Comm* comm) {
    const T* const send = buf + Verbs::count_at(displs, Rank(comm));
    Gatherv<G>(send, buf, counts, displs, root, comm);
  }

  template <ThreadGroup G, typename T, typename Comm>
  static POLYPATH_UNICONN_DEVICE void Scatter(const T* send, T* recv, std::size_t count, int root,
                                              Comm* comm) {
    scatter<G>(
        send, [&](int to) { return static_cast<std::size_t>(to) * count; },
        [&](int) { return count; }, [&](int) { return recv; }, root, comm);
  }
  template <ThreadGroup G, typename T, typename Comm>
  static POLYPATH_UNICONN_DEVICE void Scatter(T* buf, std::size_t count, int root, Comm* comm) {
    scatter<G>(
        static_cast<const T*>(buf), [&](int to) { return static_cast<std::size_t>(to) * count; },
        [&](int) { return count; }, [&](int to) { return part(buf, to, count); }, root, comm);
  }
  template <ThreadGroup G, typename T, typename Comm>
  static POLYPATH_UNICONN_DEVICE void Scatterv(const T* send, T* recv, const std::size_t* counts,
                                               const std::size_t* displs, int root, Comm* comm) {
    scatter<G>(
        send, [&](int to) { return Verbs::count_at(displs, to); },
        [&](int to) { return Verbs::count_at(counts, to); }, [&](int) { return recv; }, root, comm);
  }
  template <ThreadGroup G, typename T, typename Comm>
  static POLYPATH_UNICONN_DEVICE void Scatterv(T* buf, const std::size_t* counts,
                                               const std::size_t* displs, int root, Comm* comm) {
    scatter<G>(
        static_cast<const T*>(buf), [&](int to) { return Verbs::count_at(displs, to); },
        [&](int to) { return Verbs::count_at(counts, to); },
        [&](int to) { return buf + Verbs::count_at(displs, to); }, root, comm);
  }

 private:
  template <ThreadGroup G, typename T, typename Comm>
  static POLYPATH_UNICONN_DEVICE void put_slot(const T* send, T* slot, std::size_t count,
                                               Comm* comm) {
    between_barriers<G>(
        comm, [&] { Verbs::template put_to_all<G>(send, slot, count * sizeof(T), comm); });
  }
  /// The slot of this rank's part in what is gathered.
  template <typename Comm>
  static POLYPATH_UNICONN_DEVICE int own_slot(const Comm* comm) {
    POLYPATH_MUTANT(detail::device_mutant::wrong_slot, return (Rank(comm) + 1) % Size(comm))
    return Rank(comm);
  }
  template <typename T>
  static POLYPATH_UNICONN_DEVICE T* part(T* buffer, int rank, std::size_t count) {
    return buffer + static_cast<std::size_t>(rank) * count;
  }

  /// The first: memory of all is free; the last: all is there.
  template <ThreadGroup G, typename Comm, typename Puts>
  static POLYPATH_UNICONN_DEVICE void between_barriers(Comm* comm, const Puts& puts) {
    POLYPATH_MUTANT_OMITS(detail::device_mutant::no_first_barrier)
    Verbs::template barrier<G>(comm);
    puts();
    POLYPATH_MUTANT_OMITS(detail::device_mutant::no_last_barrier)
    Verbs::template barrier<G>(comm);
  }
  /// From this rank on, so that not all send to the same one.
  template <typename Comm, typename Call>
  static POLYPATH_UNICONN_DEVICE void for_each_rank(const Comm* comm, const Call& call) {
    const int own = Rank(comm);
    const int size = Size(comm);
    POLYPATH_UNICONN_NO_UNROLL
    for (int step = 0; step < size; ++step)
      call(own + step < size ? own + step : own + step - size);
  }

  template <ThreadGroup G, typename T, typename Displ, typename Count, typename Dest, typename Comm>
  static POLYPATH_UNICONN_DEVICE void scatter(const T* send, const Displ& displ, const Count& count,
                                              const Dest& dest, int root, Comm* comm) {
    static_assert(std::is_trivially_copyable_v<T>);
    between_barriers<G>(comm, [&] {
      if (Rank(comm) != root) return;
      for_each_rank(comm, [&](int to) {
        Verbs::template put<G>(send + displ(to), dest(to), count(to) * sizeof(T), to, comm);
      });
    });
  }
};

}  // namespace polypath::uniconn
