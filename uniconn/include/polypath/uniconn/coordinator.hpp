// Coordinator: what a stream computes and communicates.
#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "polypath/uniconn/arguments.hpp"
#include "polypath/uniconn/communicator.hpp"
#include "polypath/uniconn/device_calls.hpp"
#include "polypath/uniconn/kernel.hpp"

namespace polypath::uniconn {

/// Communication on one stream; every operation comes after what is on it. docs/uniconn.md has the
/// semantics of each, and what blocks the host.
///
/// Counts are in elements. Buffers are memory of this rank's GPU; what another rank writes to
/// (`dest`, `recv`, in place all of `buf`), and signals, are from Memory, at the same place on all
/// ranks. Ranks are those of the communicator.
///
/// A backend that lacks a launch mode does not compile; one that is chosen at run time throws
/// POLYPATH_NOT_SUPPORTED when a Coordinator is made. PartialDevice: Post tells the receiver of
/// what a kernel sent. PureDevice: kernels communicate, and the host's calls do nothing.
///
/// For one thread at a time. Throws polypath::error; POLYPATH_INVALID_ARGUMENT names the argument,
/// and nothing was issued.
template <BackendLibrary B = DefaultBackend, LaunchMode M = DefaultLaunchMode>
  requires(B::launches(M))
class Coordinator : public detail::Launches<B, M>,
                    public DeviceCalls<B>,
                    private detail::Arguments {
  using Launches = detail::Launches<B, M>;
  using Launches::job_;
  using Launches::stream_;

 public:
  explicit Coordinator(Stream stream)
      : Launches(stream), group_(job_->attached()), inner_(std::in_place, job_->attached()) {
    if constexpr (requires { job_->attached().require(M); }) job_->attached().require(M);
  }
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  /// For kernels, next to what follows for the host; BindKernel and LaunchKernel are Launches'.
  using DeviceCalls<B>::Post;
  using DeviceCalls<B>::Acknowledge;
  using DeviceCalls<B>::AllGather;
  using DeviceCalls<B>::AllGatherv;
  using DeviceCalls<B>::AllReduce;
  using DeviceCalls<B>::Reduce;
  using DeviceCalls<B>::AlltoAll;
  using DeviceCalls<B>::AlltoAllv;
  using DeviceCalls<B>::Broadcast;
  using DeviceCalls<B>::Gather;
  using DeviceCalls<B>::Gatherv;
  using DeviceCalls<B>::Scatter;
  using DeviceCalls<B>::Scatterv;

  // ---- Groups -----------------------------------------------------------------------------------

  /// From here to CommEnd operations are under way together, in no order.
  void CommStart() {
    if constexpr (kHostSends) {
      if (is_open_) throw error(POLYPATH_INVALID_ARGUMENT, "CommStart: there is a group already");
      group_.start(stream_);
      is_open_ = true;
    }
  }
  /// What comes on the stream after it finds all that was acknowledged, and may overwrite all that
  /// was posted.
  void CommEnd() {
    if constexpr (kHostSends) {
      if (!is_open_) throw error(POLYPATH_INVALID_ARGUMENT, "CommEnd: there is no group");
      is_open_ = false;
      const std::vector<std::function<void()>> behind = std::move(behind_group_);
      behind_group_.clear();
      group_.end(stream_);
      for (const auto& callback : behind) callback();
    }
  }
  /// The host waits until all that is on the stream is done. Throws when a rank failed meanwhile.
  void WaitComm() { job_->attached().synchronize(stream_); }

  // ---- From rank to rank ------------------------------------------------------------------------

  /// Sends to `dest` on `dest_rank`; after it the word `signal` there is `value`. Values of one
  /// word rise, and one rank writes it.
  template <Sendable T>
  void Post(const T* src, T* dest, std::size_t count, std::uint64_t* signal, std::uint64_t value,
            int dest_rank, Communicator<B>* comm) {
    auto& ranks = ranks_of(comm, dest_rank, "Post: dest_rank");
    if constexpr (kHostSends) {
      if (signal == nullptr && detail::is_one_sided<B>(ranks))
        throw error(POLYPATH_INVALID_ARGUMENT, "Post: signal is null");
      PostArgs posted{src, dest, bytes_of<T>(count), signal, value, dest_rank, false};
      if constexpr (M == LaunchMode::PartialDevice) {
        posted.bytes = 0;
        posted.of_kernel = true;
      } else if (posted.bytes > 0 && src == nullptr) {
        throw error(POLYPATH_INVALID_ARGUMENT, "Post: src is null");
      }
      group_.post(ranks, posted, stream_);
    }
  }
  /// What comes after it on the stream finds in `dest` what `src_rank` posted with this value, or
  /// an earlier one.
  template <Sendable T>
  void Acknowledge(T* dest, std::size_t count, std::uint64_t* signal, std::uint64_t value,
                   int src_rank, Communicator<B>* comm) {
    auto& ranks = ranks_of(comm, src_rank, "Acknowledge: src_rank");
    // As Post has it: of PartialDevice the data is a kernel's.
    const std::size_t bytes = M == LaunchMode::PureHost ? bytes_of<T>(count) : 0;
    if constexpr (kHostSends)
      group_.acknowledge(
          ranks, {dest, bytes, signal, value, src_rank, false, M == LaunchMode::PartialDevice},
          stream_);
  }

  // ---- Collectives: all ranks, in the same order ----------------------------------------------

  /// `count` elements of every rank to all, in rank order. In place: each rank's own is part r.
  template <Sendable T>
  void AllGather(const T* send, T* recv, std::size_t count, Communicator<B>* comm) {
    auto& ranks = ranks_of(comm);
    if constexpr (kHostSends) {
      if (count == 0) return;
      require(send, "AllGather: send");
      require(recv, "AllGather: recv");
      require_parts<T>(count, ranks.size());
      all_gather(ranks, send, recv, bytes_of<T>(count));
    }
  }
  template <Sendable T>
  void AllGather(T* buf, std::size_t count, Communicator<B>* comm) {
    AllGather(part(buf, ranks_of(comm).rank(), count), buf, count, comm);
  }
  /// counts[r] elements of rank r to all, at displs[r] elements of `recv`; alike on all ranks.
  template <Sendable T>
  void AllGatherv(const T* send, T* recv, const std::size_t* counts, const std::size_t* displs,
                  Communicator<B>* comm) {
    auto& ranks = ranks_of(comm);
    require(counts, "AllGatherv: counts");
    require(displs, "AllGatherv: displs");
    const auto own = static_cast<std::size_t>(ranks.rank());
    exchange(
        ranks, [&](int) { return sends(send, recv + displs[own], counts[own]); },
        [&](int from) { return receives(recv, counts, displs, from); });
  }
  template <Sendable T>
  void AllGatherv(T* buf, const std::size_t* counts, const std::size_t* displs,
                  Communicator<B>* comm) {
    const auto own = static_cast<std::size_t>(ranks_of(comm).rank());
    require(displs, "AllGatherv: displs");
    AllGatherv(buf + displs[own], buf, counts, displs, comm);
  }

  /// `count` elements of every rank, combined, to all; in place `send` is `recv`.
  template <ReductionOperator Operator, typename T>
    requires Reducible<T, Operator>
  void AllReduce(const T* send, T* recv, std::size_t count, Communicator<B>* comm) {
    reduce(element_of<T>(), Operator, detail::combine_function<Operator>, send, recv, count, -1,
           comm, "AllReduce");
  }
  template <ReductionOperator Operator, typename T>
    requires Reducible<T, Operator>
  void AllReduce(T* buf, std::size_t count, Communicator<B>* comm) {
    AllReduce<Operator>(static_cast<const T*>(buf), buf, count, comm);
  }
  /// Reduces to `root` alone: `recv` of the others stays as it is.
  template <ReductionOperator Operator, typename T>
    requires Reducible<T, Operator>
  void Reduce(const T* send, T* recv, std::size_t count, int root, Communicator<B>* comm) {
    ranks_of(comm, root, "Reduce: root");
    reduce(element_of<T>(), Operator, detail::combine_function<Operator>, send, recv, count, root,
           comm, "Reduce");
  }
  template <ReductionOperator Operator, typename T>
    requires Reducible<T, Operator>
  void Reduce(T* buf, std::size_t count, int root, Communicator<B>* comm) {
    Reduce<Operator>(static_cast<const T*>(buf), buf, count, root, comm);
  }

  /// Both with type and operator of the run time; bits are combined of integers alone.
  void AllReduce(Element element, ReductionOperator op, const void* send, void* recv,
                 std::size_t count, Communicator<B>* comm) {
    require_reducible(element, op);
    reduce(element, op, detail::combine_function_of(op), send, recv, count, -1, comm, "AllReduce");
  }
  void Reduce(Element element, ReductionOperator op, const void* send, void* recv,
              std::size_t count, int root, Communicator<B>* comm) {
    ranks_of(comm, root, "Reduce: root");
    require_reducible(element, op);
    reduce(element, op, detail::combine_function_of(op), send, recv, count, root, comm, "Reduce");
  }

  /// Part r of `send`, `count` elements, to rank r; what rank r sent is part r of `recv`. Not in
  /// place.
  template <Sendable T>
  void AlltoAll(const T* send, T* recv, std::size_t count, Communicator<B>* comm) {
    auto& ranks = ranks_of(comm);
    if constexpr (kHostSends) {
      if (count == 0) return;
      require(send, "AlltoAll: send");
      require(recv, "AlltoAll: recv");
      require_apart(send, recv, "AlltoAll");
      require_parts<T>(count, ranks.size());
      if constexpr (requires { ranks.all_to_all(send, recv, count, stream_); }) {
        if (offered([&] { return ranks.all_to_all(send, recv, bytes_of<T>(count), stream_); }))
          return;
      }
      const int own = ranks.rank();
      exchange(
          ranks,
          [&](int to) { return sends(part(send, to, count), part(recv, own, count), count); },
          [&](int from) { return receives(part(recv, from, count), count); });
    }
  }
  /// scounts[r] elements at sdispls[r] of `send` to rank r; what rank r sent, rcounts[r] elements,
  /// is at rdispls[r] of `recv`. Not in place. One-sided backends exchange rdispls on the host.
  template <Sendable T>
  void AlltoAllv(const T* send, const std::size_t* scounts, const std::size_t* sdispls, T* recv,
                 const std::size_t* rcounts, const std::size_t* rdispls, Communicator<B>* comm) {
    auto& ranks = ranks_of(comm);
    for (const std::size_t* const list : {scounts, sdispls, rcounts, rdispls})
      require(list, "AlltoAllv: counts or displs");
    if constexpr (kHostSends) {
      require_apart(send, recv, "AlltoAllv");
      const auto size = static_cast<std::size_t>(ranks.size());
      const auto own = static_cast<std::size_t>(ranks.rank());
      std::vector<std::size_t> there(size * size);
      if constexpr (requires { ranks.exchange(rdispls, there.data(), size); })
        if (detail::is_one_sided<B>(ranks))
          ranks.exchange(rdispls, there.data(), size * sizeof *rdispls);
      exchange(
          ranks,
          [&](int to) {
            const auto at = static_cast<std::size_t>(to);
            T* const dest =
                to == ranks.rank() ? recv + rdispls[own] : recv + there[at * size + own];
            return sends(send + sdispls[at], dest, scounts[at]);
          },
          [&](int from) { return receives(recv, rcounts, rdispls, from); });
    }
  }

  /// `count` elements of `root` to all.
  template <Sendable T>
  void Broadcast(T* buf, std::size_t count, int root, Communicator<B>* comm) {
    auto& ranks = ranks_of(comm, root, "Broadcast: root");
    if constexpr (kHostSends) {
      if (count == 0) return;
      require(buf, "Broadcast: buf");
      if constexpr (requires { ranks.broadcast(buf, count, root, stream_); }) {
        if (offered([&] { return ranks.broadcast(buf, bytes_of<T>(count), root, stream_); }))
          return;
      }
      exchange(
          ranks, [&](int) { return sends(buf, buf, ranks.rank() == root ? count : 0); },
          [&](int from) { return receives(buf, from == root ? count : 0); });
    }
  }

  /// `count` elements of every rank to `root`, in rank order. In place: each rank's own is part r
  /// of its `buf`.
  template <Sendable T>
  void Gather(const T* send, T* recv, std::size_t count, int root, Communicator<B>* comm) {
    auto& ranks = ranks_of(comm, root, "Gather: root");
    require_parts<T>(count, ranks.size());
    const int own = ranks.rank();
    exchange(
        ranks, [&](int to) { return sends(send, part(recv, own, count), to == root ? count : 0); },
        [&](int from) { return receives(part(recv, from, count), own == root ? count : 0); });
  }
  template <Sendable T>
  void Gather(T* buf, std::size_t count, int root, Communicator<B>* comm) {
    Gather(part(buf, ranks_of(comm).rank(), count), buf, count, root, comm);
  }
  /// counts[r] elements of rank r to displs[r] of `root`'s `recv`; alike on all ranks.
  template <Sendable T>
  void Gatherv(const T* send, T* recv, const std::size_t* counts, const std::size_t* displs,
               int root, Communicator<B>* comm) {
    auto& ranks = ranks_of(comm, root, "Gatherv: root");
    require(counts, "Gatherv: counts");
    require(displs, "Gatherv: displs");
    const auto own = static_cast<std::size_t>(ranks.rank());
    exchange(
        ranks,
        [&](int to) { return sends(send, recv + displs[own], to == root ? counts[own] : 0); },
        [&](int from) {
          AcknowledgeArgs args = receives(recv, counts, displs, from);
          if (ranks.rank() != root) args.bytes = 0;
          return args;
        });
  }
  template <Sendable T>
  void Gatherv(T* buf, const std::size_t* counts, const std::size_t* displs, int root,
               Communicator<B>* comm) {
    const auto own = static_cast<std::size_t>(ranks_of(comm).rank());
    require(displs, "Gatherv: displs");
    Gatherv(buf + displs[own], buf, counts, displs, root, comm);
  }

  /// Part r of `root`'s `send`, `count` elements, to rank r. In place: to part r of its `buf`.
  template <Sendable T>
  void Scatter(const T* send, T* recv, std::size_t count, int root, Communicator<B>* comm) {
    require_parts<T>(count, ranks_of(comm).size());
    scatter(
        send, [count](int rank) { return static_cast<std::size_t>(rank) * count; },
        [count](int) { return count; }, [recv](int) { return recv; }, root, comm, "Scatter");
  }
  template <Sendable T>
  void Scatter(T* buf, std::size_t count, int root, Communicator<B>* comm) {
    require_parts<T>(count, ranks_of(comm).size());
    scatter(
        static_cast<const T*>(buf),
        [count](int rank) { return static_cast<std::size_t>(rank) * count; },
        [count](int) { return count; }, [buf, count](int rank) { return part(buf, rank, count); },
        root, comm, "Scatter");
  }
  /// counts[r] elements at displs[r] of `root`'s `send` to rank r; alike on all ranks.
  template <Sendable T>
  void Scatterv(const T* send, T* recv, const std::size_t* counts, const std::size_t* displs,
                int root, Communicator<B>* comm) {
    require(counts, "Scatterv: counts");
    require(displs, "Scatterv: displs");
    scatter(
        send, [displs](int rank) { return displs[rank]; },
        [counts](int rank) { return counts[rank]; }, [recv](int) { return recv; }, root, comm,
        "Scatterv");
  }
  template <Sendable T>
  void Scatterv(T* buf, const std::size_t* counts, const std::size_t* displs, int root,
                Communicator<B>* comm) {
    require(counts, "Scatterv: counts");
    require(displs, "Scatterv: displs");
    scatter(
        static_cast<const T*>(buf), [displs](int rank) { return displs[rank]; },
        [counts](int rank) { return counts[rank]; },
        [buf, displs](int rank) { return buf + displs[rank]; }, root, comm, "Scatterv");
  }

 private:
  using Ranks = typename B::Ranks;
  static constexpr bool kHostSends = M != LaunchMode::PureDevice;

  // ---- Arguments --------------------------------------------------------------------------------

  static Ranks& ranks_of(Communicator<B>* comm) {
    require(comm, "comm");
    return comm->ranks();
  }
  static Ranks& ranks_of(Communicator<B>* comm, int rank, const char* what) {
    Ranks& ranks = ranks_of(comm);
    if (rank < 0 || rank >= ranks.size())
      throw error(POLYPATH_INVALID_ARGUMENT,
                  (std::string(what) + " is " + std::to_string(rank) + ": there are ranks 0 to " +
                   std::to_string(ranks.size() - 1))
                      .c_str());
    return ranks;
  }

  // ---- Composed ---------------------------------------------------------------------------------

  /// What a library offers says no by false; with no answer it did it.
  template <typename Call>
  static bool offered(const Call& call) {
    if constexpr (std::is_void_v<std::invoke_result_t<Call>>) {
      call();
      return true;
    } else {
      return call();
    }
  }

  template <typename Send, typename Receive>
  void exchange(Ranks& ranks, const Send& send, const Receive& receive) {
    if constexpr (kHostSends) {
      const bool joins = is_open_ && !detail::is_one_sided<B>(ranks);
      try {
        detail::exchange<B>(job_->cuda, ranks, joins ? group_ : *inner_, joins, stream_, send,
                            receive);
      } catch (...) {
        if (!joins) inner_.emplace(job_->attached());  // without what is left in it
        throw;
      }
    }
  }

  void all_gather(Ranks& ranks, const void* send, void* recv, std::size_t bytes) {
    if constexpr (requires { ranks.all_gather(send, recv, bytes, stream_); })
      if (offered([&] { return ranks.all_gather(send, recv, bytes, stream_); })) return;
    compose_all_gather(ranks, static_cast<const std::byte*>(send), static_cast<std::byte*>(recv),
                       bytes);
  }
  void compose_all_gather(Ranks& ranks, const std::byte* send, std::byte* recv, std::size_t bytes) {
    exchange(
        ranks, [&](int) { return sends(send, part(recv, ranks.rank(), bytes), bytes); },
        [&](int from) { return receives(part(recv, from, bytes), bytes); });
  }

  template <typename T, typename Displ, typename Count, typename Dest>
  void scatter(const T* send, const Displ& displ, const Count& count, const Dest& dest, int root,
               Communicator<B>* comm, const char* what) {
    auto& ranks = ranks_of(comm, root, (std::string(what) + ": root").c_str());
    const int own = ranks.rank();
    exchange(
        ranks,
        [&](int to) {
          const bool is_root = own == root;
          return sends(is_root && send != nullptr ? send + displ(to) : nullptr, dest(to),
                       is_root ? count(to) : 0);
        },
        [&](int from) { return receives(dest(own), from == root ? count(own) : 0); });
  }

  static void require_reducible(Element element, ReductionOperator op) {
    const auto combine = detail::combine_function_of(op);
    if (combine == nullptr || combine(element) == nullptr)
      throw error(POLYPATH_INVALID_ARGUMENT, "there is no such reduction of elements of this type");
  }

  /// To all for a negative root.
  void reduce(Element element, ReductionOperator op, detail::CombineFunction (*combine)(Element),
              const void* send, void* recv, std::size_t count, int root, Communicator<B>* comm,
              const char* what) {
    Ranks& ranks = ranks_of(comm);
    if constexpr (kHostSends) {
      const std::size_t size = uniconn::bytes_of(element);
      if (count > std::numeric_limits<std::size_t>::max() / size)
        throw error(POLYPATH_INVALID_ARGUMENT, "count is too large");
      if (count == 0) return;
      require(send, (std::string(what) + ": send").c_str());
      if (root < 0 || root == ranks.rank()) require(recv, (std::string(what) + ": recv").c_str());
      if constexpr (requires { Ranks::reduces(element, op); }) {
        if (Ranks::reduces(element, op)) {
          const auto call = [&] {
            if (root < 0) return ranks.all_reduce(send, recv, count, element, op, stream_);
            return ranks.reduce(send, recv, count, element, op, root, stream_);
          };
          if (offered(call)) return;
        }
      }
      detail::RangeCheck(job_->cuda, "send").require(send, count * size);
      if (root < 0 || root == ranks.rank())
        detail::RangeCheck(job_->cuda, "recv").require(recv, count * size);
      const auto on_host = [this, combine, element, size, send, recv, count, root, comm] {
        Ranks& backend_ranks = comm->ranks();
        detail::reduce_on_host(job_->cuda, comm->state_->scratch, backend_ranks.rank(),
                               backend_ranks.size(), root, combine(element), size, send, recv,
                               count, stream_, [&](const void* from, void* to, std::size_t bytes) {
                                 all_gather(backend_ranks, from, to, bytes);
                               });
      };
      // Its parts come one after another: not before what the group begins.
      if (is_open_) {
        behind_group_.emplace_back(on_host);
      } else {
        on_host();
      }
    }
  }

  typename B::Group group_;                 // that the program opens
  std::optional<typename B::Group> inner_;  // of a collective that does not join it; always there
  bool is_open_ = false;
  std::vector<std::function<void()>> behind_group_;
};

}  // namespace polypath::uniconn
