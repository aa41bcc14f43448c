// PolypathBackend in kernels: stores of 16 bytes into the other ranks' memory, and signals behind
// them. Header only, CUDA C++17, without -rdc.
//
// What a call does is in functions that are called, not put in place: they are a few for a whole
// program, and a kernel that calls often stays small.
//
// Every call ends: within the time limit that the communicator had when toDevice() was called, or
// with an abort. What it left undone then, WaitComm on the host tells, as an error; the same for
// memory that is not from Memory, and for ranks that there are not, to which nothing is sent.
#pragma once

#include "polypath/device/meeting.cuh"
#include "polypath/device/tile.cuh"
#include "polypath/device/wait.cuh"
#include "polypath/uniconn/device/combine.cuh"
#include "polypath/uniconn/device/groups.cuh"
#include "polypath/uniconn/device/of_host.hpp"
#include "polypath/uniconn/device/polypath_view.hpp"
#include "polypath/uniconn/device_calls.hpp"

namespace polypath::uniconn::detail {

template <>
struct DeviceVerbs<PolypathBackend> {
  using Comm = Communicator<PolypathBackend>;
  static constexpr bool kGathersAll = false;
  static constexpr bool kBroadcasts = false;
  static constexpr bool kExchangesAll = false;

  static POLYPATH_DEVICE int rank(const Comm* comm) { return device::load(&view(comm)->rank); }
  static POLYPATH_DEVICE int size(const Comm* comm) { return device::load(&view(comm)->size); }
  static POLYPATH_DEVICE std::size_t count_at(const std::size_t* list, int rank) {
    return device::load(list + rank);
  }

  template <ThreadGroup G>
  static POLYPATH_DEVICE void post(const void* src, void* dest, std::size_t bytes,
                                   std::uint64_t* signal, std::uint64_t value, int to,
                                   const Comm* comm) {
    const GroupOf<G> group;
    if (planted(DeviceFault::signal_before_data) && group.is_leader())
      give(signal, value, to, comm);
    put<G>(src, dest, bytes, to, comm);
    if (!planted(DeviceFault::signal_before_data) && group.is_leader())
      give(signal, value, to, comm);
  }

  template <ThreadGroup G>
  static POLYPATH_DEVICE void acknowledge(const std::uint64_t* signal, std::uint64_t value,
                                          int from, const Comm* comm) {
    const GroupOf<G> group;
    if (group.is_leader() && is_rank(view(comm), from))
      await(view(comm), signal, value, from, device::StatusRecord::kNobody);
    if (!planted(DeviceFault::group_ahead_of_its_leader)) group.sync();
  }

  template <ThreadGroup G>
  static POLYPATH_DEVICE_CALLED void barrier(const Comm* comm) {
    const PolypathView* const its = view(comm);
    const int own = rank(comm);
    DeviceWords* const words = device::load(&its->words[own]);
    device::meet(
        GroupOf<G>(), own, size(comm), [&](int r) { return &words->arrived[r]; },
        [&](int r) { return &device::load(&its->words[r])->arrived[own]; },
        [&](const std::uint64_t* word, std::uint64_t number, int r) {
          await(its, word, number, r, static_cast<std::uint32_t>(r));
          return true;
        });
  }

  template <ThreadGroup G>
  static POLYPATH_DEVICE void wait(const Comm*) {
    const GroupOf<G> group;
    if (!planted(DeviceFault::wait_without_fence)) device::fence_sys();
    group.sync();
  }

  template <ThreadGroup G>
  static POLYPATH_DEVICE_CALLED void put(const void* src, void* dest, std::size_t bytes, int to,
                                         const Comm* comm) {
    const GroupOf<G> group;
    if (!planted(DeviceFault::data_before_the_group)) group.sync();
    if (planted(DeviceFault::wrong_rank)) to = (to + 1) % size(comm);
    if (bytes > 0 && is_rank(view(comm), to)) {
      const DevicePiece* const piece = piece_of(view(comm), dest, bytes);
      if (piece != nullptr)
        copy<G, 1>({{on_rank(piece, dest, to)}, 1}, static_cast<const unsigned char*>(src), bytes);
    }
    if (!planted(DeviceFault::signal_before_the_group)) group.sync();
  }

  template <ThreadGroup G>
  static POLYPATH_DEVICE_CALLED void put_to_all(const void* src, void* dest, std::size_t bytes,
                                                const Comm* comm) {
    const GroupOf<G> group;
    group.sync();
    const DevicePiece* const piece = bytes > 0 ? piece_of(view(comm), dest, bytes) : nullptr;
    if (piece != nullptr)
      copy<G, kMostDeviceRanks>(
          on_all<unsigned char>(piece, static_cast<unsigned char*>(dest), size(comm)),
          static_cast<const unsigned char*>(src), bytes);
    group.sync();
  }

  template <ThreadGroup G>
  static POLYPATH_DEVICE_CALLED void tell(int to, std::uint64_t value, const Comm* comm) {
    const GroupOf<G> group;
    if (group.is_leader())
      device::store_relaxed(&device::load(&view(comm)->words[to])->told[rank(comm)], value);
  }
  static POLYPATH_DEVICE std::uint64_t told(int from, const Comm* comm) {
    return device::load_relaxed(&device::load(&view(comm)->words[rank(comm)])->told[from]);
  }

  /// Each rank combines a slice, reads it where the ranks have it, and stores it where it is to
  /// be: in place, too, nobody else looks at a slice.
  template <ThreadGroup G, ReductionOperator kOperator, typename T>
  static POLYPATH_DEVICE void reduce(const T* send, T* recv, std::size_t count, int root,
                                     const Comm* comm) {
    using Stored = typename StoredOf<kElementOf<T>>::Type;
    if (!planted(DeviceFault::no_first_barrier)) barrier<G>(comm);
    if (root < 0 || is_rank(view(comm), root))
      combine_slice<G, kOperator>(reinterpret_cast<const Stored*>(send),
                                  reinterpret_cast<Stored*>(recv), count, root, view(comm));
    if (!planted(DeviceFault::no_last_barrier)) barrier<G>(comm);
  }

 private:
  using Bytes = unsigned char;

  static POLYPATH_DEVICE const PolypathView* view(const Comm* comm) {
    return reinterpret_cast<const PolypathView*>(comm);
  }

  // ---- Addresses --------------------------------------------------------------------------------

  /// Where `address` is on another rank, which is no matter of the piece's own begin.
  template <typename T>
  static POLYPATH_DEVICE auto* on_rank(const DevicePiece* piece, T* address, int rank) {
    const std::uint64_t shift = device::load(&piece->shift[rank]);
    using Place = std::conditional_t<std::is_void_v<T>, Bytes, T>;
    return reinterpret_cast<Place*>(reinterpret_cast<std::uint64_t>(address) + shift);
  }
  template <typename Place, typename T>
  static POLYPATH_DEVICE device::Places<Place, kMostDeviceRanks> on_all(const DevicePiece* piece,
                                                                        T* address, int ranks) {
    device::Places<Place, kMostDeviceRanks> all;
    all.count = ranks;
    POLYPATH_UNROLL
    for (int r = 0; r < kMostDeviceRanks; ++r)
      if (r < ranks) all.at[r] = on_rank(piece, address, r);
    return all;
  }

  static POLYPATH_DEVICE device::Patience patience_of(const PolypathView* its) {
    const device::Patience* const from = &its->patience;
    return {device::load(&from->abort_word), device::load(&from->time_limit_ns),
            device::load(&from->status), device::load(&from->reports), device::load(&from->kernel)};
  }
  static POLYPATH_DEVICE_CALLED void complain(const PolypathView* its,
                                              device::StatusRecord::Reason reason,
                                              const device::Awaited& wrong) {
    const device::Patience patience = patience_of(its);
    device::report(patience, reason, wrong);
  }

  /// The piece that holds the range. Null: there is none, and the host is told. All threads of a
  /// group look at the same words, four pieces at a time, so that their loads overlap.
  static POLYPATH_DEVICE_CALLED const DevicePiece* piece_of(const PolypathView* its,
                                                            const void* address,
                                                            std::size_t bytes) {
    constexpr std::uint32_t kTogether = 4;
    const auto at = reinterpret_cast<std::uint64_t>(address);
    const std::uint64_t count = device::load(&its->count);
    for (std::uint32_t first = 0; first < count; first += kTogether) {
      const DevicePiece* found = nullptr;
      POLYPATH_UNROLL
      for (std::uint32_t i = first; i < first + kTogether; ++i) {
        const std::uint64_t offset = at - device::load(&its->pieces[i].begin);
        const std::uint64_t size = device::load(&its->pieces[i].bytes);
        if (offset < size && bytes <= size - offset) found = &its->pieces[i];
      }
      if (found != nullptr) return found;
    }
    complain(its, device::StatusRecord::bad_memory,
             {device::StatusRecord::kNobody, 0, 0, at, bytes});
    return nullptr;
  }
  static_assert(kMostDevicePieces % 4 == 0);

  static POLYPATH_DEVICE bool is_rank(const PolypathView* its, int rank) {
    const int ranks = device::load(&its->size);
    if (static_cast<unsigned>(rank) < static_cast<unsigned>(ranks)) return true;
    complain(its, device::StatusRecord::bad_rank,
             {device::StatusRecord::kNobody, static_cast<std::uint64_t>(ranks),
              static_cast<std::uint64_t>(static_cast<std::int64_t>(rank))});
    return false;
  }

  // ---- Words ------------------------------------------------------------------------------------

  /// One thread: behind all that it knows of, the word on another rank.
  static POLYPATH_DEVICE_CALLED void give(std::uint64_t* signal, std::uint64_t value, int to,
                                          const Comm* comm) {
    if (signal == nullptr || !is_rank(view(comm), to)) return;
    const DevicePiece* const piece = piece_of(view(comm), signal, sizeof *signal);
    if (piece == nullptr) return;
    std::uint64_t* const word = on_rank(piece, signal, to);
    if (planted(DeviceFault::signal_without_release))
      device::store_relaxed(word, value);
    else
      device::store_release(word, value);
  }

  /// One thread: until the word is at the value. `of_barrier`: the rank whose arrival it is;
  /// kNobody: it is a signal of `from`.
  static POLYPATH_DEVICE_CALLED void await(const PolypathView* its, const std::uint64_t* word,
                                           std::uint64_t value, int from,
                                           std::uint32_t of_barrier) {
    const bool is_signal = of_barrier == device::StatusRecord::kNobody;
    const auto awaited = [&](std::uint64_t seen) {
      return device::Awaited{static_cast<std::uint32_t>(from), value, seen,
                             is_signal ? reinterpret_cast<std::uint64_t>(word) : 0,
                             is_signal ? sizeof *word : 0};
    };
    const auto patience = [&] { return patience_of(its); };
    if (!device::await_value(word, value, patience, awaited))
      device::wait_for_abort(patience_of(its));
  }

  // ---- Data -------------------------------------------------------------------------------------

  template <ThreadGroup G, int kMost>
  static POLYPATH_DEVICE void copy(const device::Places<Bytes, kMost> to, const Bytes* from,
                                   std::size_t bytes) {
    constexpr int kInFlight = kMost == 1 ? 4 : 2;  // registers are the program's
    device::copy_tile<device::Access::streaming, device::Access::streaming, kInFlight>(
        GroupOf<G>(), to, from, bytes);
  }

  template <ThreadGroup G, ReductionOperator kOperator, typename Stored>
  static POLYPATH_DEVICE_CALLED void combine_slice(const Stored* send, Stored* recv,
                                                   std::size_t count, int root,
                                                   const PolypathView* its) {
    const int own = device::load(&its->rank);
    const int ranks = device::load(&its->size);
    const device::Slice slice = device::slice_of(own, ranks, count);
    if (slice.length == 0) return;
    const std::size_t bytes = slice.length * sizeof(Stored);
    const DevicePiece* const source = piece_of(its, send + slice.begin, bytes);
    const DevicePiece* const target = piece_of(its, recv + slice.begin, bytes);
    if (source == nullptr || target == nullptr) return;
    device::Places<Stored, kMostDeviceRanks> to;
    if (root < 0) {
      to = on_all<Stored>(target, recv + slice.begin, ranks);
    } else {
      to.count = 1;
      to.at[0] = on_rank(target, recv + slice.begin, root);
    }
    device::combine_all(GroupOf<G>(), Combine<kOperator, Stored>(ranks), to,
                        on_all<const Stored>(source, send + slice.begin, ranks), own, slice.length);
  }
};

}  // namespace polypath::uniconn::detail
