// PolypathBackend in kernels: stores of 16 bytes into the other ranks' memory, and signals after
// them. Header only, CUDA C++17, without -rdc.
//
// What a call does is in functions that are called, not put in place: they are a few for a whole
// program, and a kernel that calls often stays small.
//
// Every call ends: within the time limit that the communicator had when toDevice() was called, or
// with an abort. What it left undone then, WaitComm on the host tells, as an error; the same for
// memory that is not from Memory, and for ranks that there are not, to which nothing is sent.
#pragma once

#include "polypath/device/detail/mutants.hpp"
#include "polypath/device/detail/rank_barrier.cuh"
#include "polypath/device/tile.cuh"
#include "polypath/device/wait.cuh"
#include "polypath/uniconn/device/combine.cuh"
#include "polypath/uniconn/device/groups.cuh"
#include "polypath/uniconn/device/host_types.hpp"
#include "polypath/uniconn/device/polypath_view.hpp"
#include "polypath/uniconn/device/region_lookup.cuh"
#include "polypath/uniconn/device/register_copy.cuh"
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
    send<G>(src, dest, bytes, signal, value, to, comm);
  }

  template <ThreadGroup G>
  static POLYPATH_DEVICE void acknowledge(const std::uint64_t* signal, std::uint64_t value,
                                          int from, const Comm* comm) {
    const GroupOf<G> group;
    if (group.is_leader() && is_rank(view(comm), from, size(comm)))
      await(view(comm), signal, value, from, device::wait_error::kNobody);
    POLYPATH_MUTANT_OMITS(device_mutant::group_ahead_of_its_leader)
    group.sync();
  }

  template <ThreadGroup G>
  static POLYPATH_DEVICE_NOINLINE void barrier(const Comm* comm) {
    const PolypathView* const comm_view = view(comm);
    const int own = rank(comm);
    DeviceWords* const words = device::load(&comm_view->words[own]);
    device::meet(
        GroupOf<G>(), own, size(comm), [&](int r) { return &words->arrived[r]; },
        [&](int r) { return &device::load(&comm_view->words[r])->arrived[own]; },
        [&](const std::uint64_t* word, std::uint64_t number, int r) {
          await(comm_view, word, number, r, static_cast<std::uint32_t>(r));
          return true;
        });
  }

  template <ThreadGroup G>
  static POLYPATH_DEVICE void wait(const Comm*) {
    const GroupOf<G> group;
    POLYPATH_MUTANT_OMITS(device_mutant::wait_without_fence)
    device::fence_sys();
    group.sync();
  }

  template <ThreadGroup G>
  static POLYPATH_DEVICE void put(const void* src, void* dest, std::size_t bytes, int to,
                                  const Comm* comm) {
    send<G>(src, dest, bytes, nullptr, 0, to, comm);
  }

  template <ThreadGroup G>
  static POLYPATH_DEVICE_NOINLINE void put_to_all(const void* src, void* dest, std::size_t bytes,
                                                  const Comm* comm) {
    const GroupOf<G> group;
    group.sync();
    Search<TeamOf<G>> search(view(comm));
    search.begin();
    const std::uint32_t piece = bytes > 0 ? search.piece_of(dest, bytes) : kNoPiece;
    constexpr int kInFlight = 2;  // registers are the program's
    if (piece != kNoPiece)
      device::copy_tile<device::tile_access::streaming, device::tile_access::streaming, kInFlight>(
          group, on_all(view(comm), piece, static_cast<Bytes*>(dest), size(comm)),
          static_cast<const Bytes*>(src), bytes);
    group.sync();
  }

  template <ThreadGroup G>
  static POLYPATH_DEVICE_NOINLINE void tell(int to, std::uint64_t value, const Comm* comm) {
    const GroupOf<G> group;
    if (group.is_leader())
      device::store_relaxed(&device::load(&view(comm)->words[to])->signals[rank(comm)], value);
  }
  static POLYPATH_DEVICE std::uint64_t signal_from(int from, const Comm* comm) {
    return device::load_relaxed(&device::load(&view(comm)->words[rank(comm)])->signals[from]);
  }

  /// Each rank combines a slice, reads it where the ranks have it, and stores it at its
  /// destination. In place, too: no other rank reads that slice.
  template <ThreadGroup G, ReductionOperator kOperator, typename T>
  static POLYPATH_DEVICE void reduce(const T* send, T* recv, std::size_t count, int root,
                                     const Comm* comm) {
    using Stored = typename StoredOf<kElementOf<T>>::Type;
    POLYPATH_MUTANT_OMITS(device_mutant::no_first_barrier)
    barrier<G>(comm);
    if (root < 0 || is_rank(view(comm), root, size(comm)))
      combine_slice<G, kOperator>(reinterpret_cast<const Stored*>(send),
                                  reinterpret_cast<Stored*>(recv), count, root, view(comm));
    POLYPATH_MUTANT_OMITS(device_mutant::no_last_barrier)
    barrier<G>(comm);
  }

 private:
  using Bytes = unsigned char;
  /// What of a group looks together where not all of it does.
  template <ThreadGroup G>
  using TeamOf = decltype(device::detail::team_of(GroupOf<G>()));

  static POLYPATH_DEVICE const PolypathView* view(const Comm* comm) {
    return reinterpret_cast<const PolypathView*>(comm);
  }

  // ---- Posts ------------------------------------------------------------------------------------

  /// The data, and after it the word, unless that is null. What both need of the view is loaded at
  /// once, before the group has come; few bytes are the first warp's alone.
  template <ThreadGroup G>
  static POLYPATH_DEVICE_NOINLINE void send(const void* src, void* dest, std::size_t bytes,
                                            std::uint64_t* signal, std::uint64_t value, int to,
                                            const Comm* comm) {
    const GroupOf<G> group;
    const TeamOf<G> team;
    const bool is_first_team = group.rank() < team.size();
    register_copy few(src, dest, bytes);
    const bool are_few = few.are_of(team.size());
    const bool has_a_part = is_first_team || !are_few;
    Search<TeamOf<G>> search(view(comm));
    if (has_a_part) search.begin(to);
    POLYPATH_MUTANT_OMITS(device_mutant::data_before_the_group)
    group.sync();
    std::uint64_t* word = nullptr;
    if (has_a_part) {
      if (are_few) few.load(team.rank());
      bool is_sent = is_rank(view(comm), to, search.ranks());
      const auto place_signal = [&] {
        if (is_first_team && signal != nullptr) word = search.place_on(to, signal, sizeof *signal);
      };
      POLYPATH_MUTANT(device_mutant::signal_before_data, if (is_sent) place_signal())
      POLYPATH_MUTANT(device_mutant::signal_before_data, if (group.is_leader()) give(word, value))
      Bytes* there = nullptr;
      if (is_sent && bytes > 0) {
        auto* const target = static_cast<Bytes*>(dest);
        there = search.place_on(to, target, bytes);
        POLYPATH_MUTANT_ONLY(const int next = (to + 1) % search.ranks())
        POLYPATH_MUTANT(device_mutant::wrong_rank, there = search.place_on(next, target, bytes))
        is_sent = there != nullptr;
        if (is_sent && are_few) few.store(there, team.rank());
      }
      if (is_sent) place_signal();
      if (is_sent && !are_few)
        device::copy_chunks(group, there, static_cast<const Bytes*>(src), bytes);
    }
    POLYPATH_MUTANT_OMITS(device_mutant::signal_before_the_group)
    group.sync();
    if (group.is_leader()) give(word, value);
  }

  // ---- Words ------------------------------------------------------------------------------------

  /// One thread: after all that it knows of, the word on another rank.
  static POLYPATH_DEVICE void give(std::uint64_t* word, std::uint64_t value) {
    if (word == nullptr) return;
    POLYPATH_MUTANT_ELSE(device_mutant::signal_without_release, device::store_relaxed(word, value))
    device::store_release(word, value);
  }

  /// One thread: until the word is at the value. `of_barrier`: the rank whose arrival it is;
  /// kNobody: it is a signal of `from`.
  static POLYPATH_DEVICE_NOINLINE void await(const PolypathView* comm_view,
                                             const std::uint64_t* word, std::uint64_t value,
                                             int from, std::uint32_t of_barrier) {
    const bool is_signal = of_barrier == device::wait_error::kNobody;
    const auto awaited = [&](std::uint64_t seen) {
      return device::wait_target{static_cast<std::uint32_t>(from), value, seen,
                                 is_signal ? reinterpret_cast<std::uint64_t>(word) : 0,
                                 is_signal ? sizeof *word : 0};
    };
    const auto wait_ctx = [&] { return wait_context_of(comm_view); };
    if (!device::await_value(word, value, wait_ctx, awaited))
      device::wait_for_abort(wait_context_of(comm_view));
  }

  template <ThreadGroup G, ReductionOperator kOperator, typename Stored>
  static POLYPATH_DEVICE_NOINLINE void combine_slice(const Stored* send, Stored* recv,
                                                     std::size_t count, int root,
                                                     const PolypathView* comm_view) {
    const int own = device::load(&comm_view->rank);
    const int ranks = device::load(&comm_view->size);
    const device::element_slice slice = device::slice_of(own, ranks, count);
    if (slice.length == 0) return;
    const std::size_t bytes = slice.length * sizeof(Stored);
    Search<TeamOf<G>> search(comm_view);
    search.begin();
    const std::uint32_t source = search.piece_of(send + slice.begin, bytes);
    const std::uint32_t target = search.piece_of(recv + slice.begin, bytes);
    if (source == kNoPiece || target == kNoPiece) return;
    device::pointer_list<Stored, kMaxDeviceRanks> to;
    if (root < 0) {
      to = on_all(comm_view, target, recv + slice.begin, ranks);
    } else {
      to.count = 1;
      to.at[0] = on_rank(comm_view, target, recv + slice.begin, root);
    }
    device::combine_all(GroupOf<G>(), Combine<kOperator, Stored>(ranks), to,
                        on_all(comm_view, source, send + slice.begin, ranks), own, slice.length);
  }
};

}  // namespace polypath::uniconn::detail
