// Active messages: a group of threads on one GPU has functions executed by groups on another, each
// with arguments of its own. The functions, "handlers", are fixed at compile time: a message says
// by number which, and the executing thread chooses by comparisons, not by a function pointer.
//
//   struct Visited {                       // what replies with nothing
//     struct arguments { std::uint32_t vertex; };
//     std::uint32_t* counts;
//     POLYPATH_DEVICE void operator()(unsigned source, const arguments& args) const {
//       fetch_add<device_scope>(counts + args.vertex, 1U);
//     }
//   };
//   struct Visit {                         // what replies: says to which handler
//     struct arguments { std::uint32_t vertex; };
//     POLYPATH_DEVICE reply<Visited> operator()(unsigned source, const arguments& of) const;
//   };
//
//   active_messages<Visit, Visited> messages(view, Visit{}, Visited{counts});
//   messages.send<Visit>(this_warp{}, destination, {vertex});   // one message of each thread
//   messages.progress(this_warp{});                             // executes what has come
//
// A handler is executed by one thread, those of a warp side by side. It may reply, by what it
// returns, and sends nothing else; the handler of a reply returns nothing. Requests and replies
// have rings of their own, and a group that waits for room executes meanwhile what can always be
// executed. So two full queues never wait for each other.
//
// Messages of one group to one rank are popped in the order in which they were sent. Where one
// group executes they also begin in it; where several do, each begins with what it popped when it
// comes to it. Those of several threads are side by side, and of several groups in any order. What
// a handler stores, others see by its own atomics and fences: a message publishes its arguments and
// nothing else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "polypath/device/active_messages_view.hpp"
#include "polypath/device/detail/mutants.hpp"
#include "polypath/device/queue.cuh"
#include "polypath/device/spsc_queue.cuh"

namespace polypath::device {

/// What a handler returns that replies: to have `Handler` executed where the message came from.
template <typename Handler>
struct reply {
  typename Handler::arguments arguments;
  bool is_sent = true;  ///< false: no reply to this message
};

namespace detail {

template <typename Result>
struct reply_type {
  static_assert(std::is_void<Result>::value, "a handler returns nothing, or a reply<Handler>");
  using handler = void;
};
template <typename Handler>
struct reply_type<reply<Handler>> {
  using handler = Handler;
};
template <typename Handler>
using ResultOf = decltype(std::declval<const Handler&>()(
    0U, std::declval<const typename Handler::arguments&>()));
template <typename Handler>
using Replying = typename reply_type<ResultOf<Handler>>::handler;

constexpr std::size_t max_of() { return 0; }
template <typename... Rest>
constexpr std::size_t max_of(std::size_t first, Rest... rest) {
  const std::size_t others = max_of(rest...);
  return first > others ? first : others;
}

template <unsigned kIndex, typename Handler>
struct handler_slot {
  Handler handler;
};
template <typename sorted_indices, typename... Handlers>
struct handler_tuple;
template <std::size_t... kIndex, typename... Handlers>
struct handler_tuple<std::index_sequence<kIndex...>, Handlers...>
    : handler_slot<kIndex, Handlers>... {
  POLYPATH_DEVICE explicit handler_tuple(const Handlers&... handlers)
      : handler_slot<kIndex, Handlers>{handlers}... {}
};

}  // namespace detail

template <typename... Handlers>
class active_messages {
  static_assert(sizeof...(Handlers) > 0 && sizeof...(Handlers) < 0xFFFF, "so many handlers");
  static_assert((std::is_trivially_copyable<typename Handlers::arguments>::value && ...),
                "arguments are copied as bytes");
  static_assert(((sizeof(typename Handlers::arguments) <= 88) && ...),
                "a message has at most 88 bytes of arguments: send where larger data lie");

  static constexpr unsigned kWords =
      (detail::max_of(sizeof(typename Handlers::arguments)...) + 3) / 4;
  static constexpr std::uint32_t kNobody = 0xFFFF;
  static constexpr std::uint32_t kLooksPerReply = 8;
  /// What lies in a cell: the handler's number, the bytes of its arguments, and they.
  struct Call {
    std::uint32_t head;
    std::uint32_t words[kWords];
  };
  using Queue = queue<Call, system_scope>;
  using View = active_messages_view;
  using sorted_indices = std::make_index_sequence<sizeof...(Handlers)>;

 public:
  static constexpr unsigned kCellBytes = Queue::kCellBytes;

  /// Made by all threads alike that call it; costs registers, and no memory access.
  POLYPATH_DEVICE explicit active_messages(const View& view, const Handlers&... handlers)
      : view_(view), handlers_(handlers...) {
    const unsigned team = (block_index() * threads_of_block() + rank_in_block()) / kWarp;
    shard_ = team & (view.shards() - 1);
    windows_[View::request] = windows_[View::reply] = team;
  }

  /// Sends one message of each thread of the group, which all call it with the same destination (a
  /// block: each warp with the same). While there is no room it executes what has come.
  ///   bad_rank   there is no such rank; nothing was sent
  ///   bad_view   the cells of the view are too small; also returned by progress()
  ///   aborted    the time limit, or an abort; nothing was sent
  template <typename Handler, typename Group>
  POLYPATH_DEVICE status send(const Group& group, unsigned destination,
                              const typename Handler::arguments& arguments) {
    if (destination >= view_.ranks) return status::bad_rank;
    if (view_.cell_bytes < kCellBytes) return status::bad_view;
    const auto team = detail::team_of(group);
    const Call call = call_of<Handler>(arguments);
    const Queue to(outgoing(View::request, destination, shard_));
    if (to.try_push(team, call) == status::done) return status::done;
    return push_and_execute<View::request>(team, to, call);
  }

  /// Executes some of what has come, if anything has, each message by one thread of the group,
  /// which all call it. All rings of this GPU have their turn. Does not wait but for room for
  /// replies.
  ///   done      something was executed
  ///   empty     there was nothing
  ///   closed    every rank has closed, and all that came has been executed, or is by other groups:
  ///             when their calls return, and those of all ranks, no message is under way
  ///   aborted   as send(), while a reply was waiting for room; or a message of another program
  template <typename Group>
  POLYPATH_DEVICE status progress(const Group& group) {
    if (view_.cell_bytes < kCellBytes) return status::bad_view;
    const auto team = detail::team_of(group);
    // While requests keep coming, replies are looked at now and then.
    status replies = status::empty;
    if (!is_busy_ || windows_[View::request] % kLooksPerReply == 0)
      replies = look<View::reply>(team);
    if (replies == status::aborted) return replies;
    const status requests = look<View::request>(team);
    if (requests == status::aborted) return requests;
    is_busy_ = requests == status::done;
    if (replies != status::closed || requests != status::closed) {
      idle_windows_ = 0;
      return is_busy_ || replies == status::done ? status::done : status::empty;
    }
    // As many windows in a row as there are, with all of their rings at an end.
    return ++idle_windows_ > windows(team) ? status::closed : status::empty;
  }

  /// Whether the communicator was aborted, or a wait of this rank timed out. progress() does not
  /// check. Polling loops must: all threads of a group, or each warp of a block for itself.
  template <typename Group>
  [[nodiscard]] POLYPATH_DEVICE bool is_aborted(const Group& group) const {
    return device::is_aborted(detail::team_of(group), view_.wait_ctx, view_.number);
  }

  /// progress(), until it is `closed`. Waits no longer than the time limit for a message.
  template <typename Group>
  POLYPATH_DEVICE status progress_until_closed(const Group& group) {
    const auto team = detail::team_of(group);
    for (wait_timer watch;;) {
      const status result = progress(team);
      if (result == status::done) watch = wait_timer{};
      if (result != status::done && result != status::empty) return result;
      if (result == status::empty && !rest<View::request>(team, watch)) return status::aborted;
    }
  }

  /// This rank sends no requests any more. Called by one thread, once, when all of its send() have
  /// returned, or been ordered before it.
  POLYPATH_DEVICE void close() const {
    for (std::uint32_t to = 0; to < view_.ranks; ++to)
      for (std::uint32_t shard = 0; shard < view_.shards(); ++shard)
        Queue(outgoing(View::request, to, shard)).close();
  }

  /// Requests that this rank has sent to `destination`, and has executed of `source`, by now.
  [[nodiscard]] POLYPATH_DEVICE std::uint64_t sent(unsigned destination) const {
    std::uint64_t sum = 0;
    for (std::uint32_t shard = 0; shard < view_.shards(); ++shard)
      sum += load_relaxed<system_scope>(outgoing(View::request, destination, shard).tail);
    return sum;
  }
  [[nodiscard]] POLYPATH_DEVICE std::uint64_t executed(unsigned source) const {
    std::uint64_t sum = 0;
    for (std::uint32_t shard = 0; shard < view_.shards(); ++shard)
      sum += load_relaxed<system_scope>(
          word_of(local_memory(View::request, source, shard), View::kExecuted));
    return sum;
  }

 private:
  // ---- rings ----

  [[nodiscard]] POLYPATH_DEVICE static std::uint64_t* word_of(unsigned char* ring,
                                                              std::size_t offset) {
    return reinterpret_cast<std::uint64_t*>(ring + offset);
  }
  [[nodiscard]] POLYPATH_DEVICE unsigned char* local_memory(View::kind kind, std::uint32_t peer,
                                                            std::uint32_t shard) const {
    return view_.local + view_.ring_offset(kind, peer, shard);
  }
  [[nodiscard]] POLYPATH_DEVICE unsigned char* remote_memory(View::kind kind, std::uint32_t peer,
                                                             std::uint32_t shard) const {
    const auto* const all = reinterpret_cast<unsigned char* const*>(view_.local);
    return load_constant(all + peer) + view_.ring_offset(kind, view_.rank, shard);
  }
  [[nodiscard]] POLYPATH_DEVICE queue_view ring(unsigned char* producer,
                                                unsigned char* consumer) const {
    queue_view result{};
    result.tail = word_of(producer, View::kTail);
    result.credit = reinterpret_cast<std::uint32_t*>(producer + View::kCredit);
    result.head = word_of(consumer, View::kHead);
    result.closed = word_of(consumer, View::kClosed);
    unsigned char* const read = consumer + View::kCredit + view_.segments() * View::kLine;
    result.read = reinterpret_cast<std::uint32_t*>(read);
    result.cells = read + view_.segments() * View::kLine;
    result.capacity_log2 = view_.capacity_log2;
    result.segment_log2 = view_.segment_log2;
    result.number = view_.number;
    result.wait_ctx = view_.wait_ctx;
    return result;
  }
  [[nodiscard]] POLYPATH_DEVICE queue_view outgoing(View::kind kind, std::uint32_t peer,
                                                    std::uint32_t shard) const {
    return ring(local_memory(kind, peer, shard), remote_memory(kind, peer, shard));
  }
  [[nodiscard]] POLYPATH_DEVICE queue_view incoming(View::kind kind, std::uint32_t peer,
                                                    std::uint32_t shard) const {
    return ring(remote_memory(kind, peer, shard), local_memory(kind, peer, shard));
  }
  // Neighbouring rings are of different sources.
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t source_of(std::uint32_t ring) const {
    return ring % view_.ranks;
  }
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t shard_of(std::uint32_t ring) const {
    return ring / view_.ranks;
  }
  template <typename Team>
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t windows(const Team& team) const {
    return (view_.rings() + team.size() - 1) / team.size();
  }

  // ---- messages ----

  template <typename Handler, std::size_t... kIndex>
  POLYPATH_DEVICE static constexpr std::uint32_t number_of(std::index_sequence<kIndex...>) {
    constexpr bool is_one = (std::is_same<Handler, Handlers>::value || ...);
    static_assert(is_one, "no handler of these active_messages");
    return ((std::is_same<Handler, Handlers>::value ? static_cast<std::uint32_t>(kIndex) : 0) +
            ...);
  }
  template <typename Handler>
  POLYPATH_DEVICE static Call call_of(const typename Handler::arguments& arguments) {
    constexpr std::uint32_t bytes = sizeof(typename Handler::arguments);
    Call call{};
    call.head = number_of<Handler>(sorted_indices{}) | bytes << 16;
    memcpy(call.words, &arguments, bytes);
    return call;
  }

  template <View::kind kKind, std::size_t... kIndex>
  POLYPATH_DEVICE bool execute(std::index_sequence<kIndex...>, const Call& call, unsigned source,
                               Call& answer) const {
    return (((call.head & 0xFFFFU) == kIndex &&
             execute_one<kKind, Handlers>(
                 static_cast<const detail::handler_slot<kIndex, Handlers>&>(handlers_).handler,
                 call, source, answer)) ||
            ...);
  }
  /// False: it is no message for this handler.
  template <View::kind kKind, typename Handler>
  POLYPATH_DEVICE bool execute_one(const Handler& handler, const Call& call, unsigned source,
                                   Call& answer) const {
    using Arguments = typename Handler::arguments;
    using Answer = detail::Replying<Handler>;
    constexpr bool replies = !std::is_void<Answer>::value;
    if (call.head >> 16 != sizeof(Arguments)) return false;
    Arguments arguments;
    memcpy(&arguments, call.words, sizeof(Arguments));
    if constexpr (!replies) {
      handler(source, arguments);
      return true;
    } else if constexpr (kKind == View::request) {
      static_assert(std::is_void<detail::Replying<Answer>>::value,
                    "the handler of a reply cannot reply");
      const reply<Answer> result = handler(source, arguments);
      if (result.is_sent) answer = call_of<Answer>(result.arguments);
      return true;
    } else {
      return false;
    }
  }

  // ---- progress ----

  /// One ring, as one thread sees it.
  struct Seen {
    bool has_message;
    bool is_at_end;
  };
  template <View::kind kKind>
  POLYPATH_DEVICE Seen see(std::uint32_t number) const {
    const std::uint32_t source = source_of(number);
    const queue_view from = incoming(kKind, source, shard_of(number));
    const std::uint64_t head = load_relaxed<system_scope>(from.head);
    Call call;
    if (ring_buffer<Call, system_scope, ll>(from.cells, from.capacity_log2).get(head, call))
      return {true, false};
    const std::uint64_t closed = load_relaxed<system_scope>(from.closed);
    if (closed > head) return {false, false};
    return {false, kKind == View::reply || end_replies(source, shard_of(number), closed)};
  }
  /// All requests of a ring have been popped; once they have been executed, nothing more is replied
  /// to them.
  POLYPATH_DEVICE bool end_replies(std::uint32_t source, std::uint32_t shard,
                                   std::uint64_t closed) const {
    unsigned char* const own = local_memory(View::request, source, shard);
    if (load_relaxed<system_scope>(word_of(own, View::kExecuted)) != closed) return false;
    std::uint64_t* const ended = word_of(own, View::kEnded);
    if (load_relaxed<system_scope>(ended) != 0) return true;
    fence<device_scope>();  // of the replies' turns
    if (compare_exchange<system_scope>(ended, std::uint64_t{0}, std::uint64_t{1}) == 0)
      Queue(outgoing(View::reply, source, shard)).close();
    return true;
  }

  /// Looks at the rings of one window, one a thread, and pops from those that have something:
  /// `done`, `empty`, `closed` (all of them), or `aborted`.
  template <View::kind kKind, typename Team>
  POLYPATH_DEVICE_NOINLINE status look(const Team& team) {
    const std::uint32_t first = windows_[kKind]++ % windows(team) * team.size();
    const std::uint32_t own = first + team.rank();
    Seen seen{false, true};
    if (own < view_.rings()) seen = see<kKind>(own);
    if (!team.any(seen.has_message))
      return team.all(seen.is_at_end) ? status::closed : status::empty;
    bool executed = false;
    POLYPATH_NO_UNROLL
    for (unsigned i = 0; i < team.size(); ++i) {
      // Groups begin at different rings of a window, so that they do not meet at each.
      const unsigned place = (i + shard_) % team.size();
      if (!team.any(seen.has_message && team.rank() == place)) continue;
      const status result = pop_and_execute<kKind>(team, first + place);
      if (result == status::aborted) return result;
      executed = executed || result == status::done;
    }
    return executed ? status::done : status::empty;
  }

  template <View::kind kKind, typename Team>
  POLYPATH_DEVICE status pop_and_execute(const Team& team, std::uint32_t number) {
    const std::uint32_t source = source_of(number);
    const std::uint32_t shard = shard_of(number);
    Call call;
    const Queue from(incoming(kKind, source, shard));
    const bool is_mine = from.try_pop(team, call) == status::done;
    if (!team.any(is_mine)) return status::empty;
    Call answer;
    answer.head = kNobody;
    const bool is_right = !is_mine || (call.head & 0xFFFFU) == kNobody ||
                          execute<kKind>(sorted_indices{}, call, source, answer);
    if (!team.all(is_right)) {
      if (!is_right)
        report(view_.wait_ctx, wait_error::bad_state,
               {source, sizeof...(Handlers), call.head, view_.number, 0});
      team.sync();
      return status::aborted;
    }
    if constexpr (kKind == View::request) {
      if (!answer_all(team, source, shard, is_mine, answer)) return status::aborted;
    }
    return status::done;
  }
  /// Replies to the requests that this team popped, and counts them. False: timed out or aborted.
  template <typename Team>
  POLYPATH_DEVICE bool answer_all(const Team& team, std::uint32_t source, std::uint32_t shard,
                                  bool is_mine, const Call& answer) {
    std::uint64_t* const executed =
        word_of(local_memory(View::request, source, shard), View::kExecuted);
    const unsigned popped = count_of(team, is_mine);
    const auto count = [&] {
      if (team.is_leader()) red_add_relaxed(executed, std::uint64_t{popped});
    };
    POLYPATH_MUTANT(active_message_mutant::executed_before_the_reply, count())
    if (team.any(answer.head != kNobody)) {
      auto kind = View::reply;
      POLYPATH_MUTANT(active_message_mutant::replies_among_requests, kind = View::request)
      const Queue back(outgoing(kind, source, shard));
      if (back.try_push(team, answer) != status::done &&
          push_and_execute<View::reply>(team, back, answer) != status::done)
        return false;
      fence<device_scope>();  // its turn before the count
    }
    POLYPATH_MUTANT_OMITS(active_message_mutant::executed_before_the_reply)
    count();
    return true;
  }
  POLYPATH_DEVICE static unsigned count_of(const this_thread&, bool value) { return value ? 1 : 0; }
  POLYPATH_DEVICE static unsigned count_of(const this_warp&, bool value) {
    return countr_one(warp_ballot(value));
  }

  template <View::kind kKind, typename Team>
  POLYPATH_DEVICE status execute_while_full(const Team& team) {
    const status replies = look<View::reply>(team);
    if (kKind != View::request || replies == status::aborted) return replies;
    const status requests = look<View::request>(team);
    return requests == status::done || requests == status::aborted ? requests : replies;
  }
  /// Pushes, and while there is no room executes: replies, which need none; a request also what
  /// others request.
  template <View::kind kKind, typename Team>
  POLYPATH_DEVICE_NOINLINE status push_and_execute(const Team& team, const Queue& to,
                                                   const Call& call) {
    for (wait_timer watch;;) {
      const status pushed = to.try_push(team, call);
      if (pushed != status::full) return pushed;
      status executed = status::empty;
      POLYPATH_MUTANT_OMITS(active_message_mutant::no_progress_while_full)
      executed = execute_while_full<kKind>(team);
      if (executed == status::aborted) return executed;
      if (executed == status::done) continue;
      if (!rest<kKind>(team, watch)) return status::aborted;
    }
  }

  /// Between two polls that found nothing of kind kKind or below. False: the caller must return.
  template <View::kind kKind, typename Team>
  POLYPATH_DEVICE bool rest(const Team& team, wait_timer& watch) const {
    const bool is_over = watch.is_over(view_.wait_ctx, team.is_leader()) && team.is_leader();
    if (is_over)
      report(view_.wait_ctx, watch.reason(), {wait_error::kNobody, 0, 0, view_.number, 0});
    if (team.any(is_over)) return false;
#if !defined(__CUDACC__)
    // One thread sleeps for the team, so it looks at all that would wake one of the others.
    bool has_message = false;
    bool is_at_end = true;
    for (std::uint32_t i = 0; team.is_leader() && i < view_.rings(); ++i) {
      const Seen replies = see<View::reply>(i);
      const Seen requests = kKind == View::request ? see<View::request>(i) : Seen{false, false};
      has_message = has_message || replies.has_message || requests.has_message;
      is_at_end = is_at_end && replies.is_at_end && requests.is_at_end;
    }
    if (team.is_leader() && !has_message && !is_at_end) spin_pause();
    if (!team.is_leader()) stop_watching();
    team.sync();
#endif
    return true;
  }

  View view_;
  detail::handler_tuple<sorted_indices, Handlers...> handlers_;
  std::uint32_t shard_;
  std::uint32_t windows_[2];        ///< where the next look is, of requests and of replies
  std::uint32_t idle_windows_ = 0;  ///< looked at in a row, and at an end
  bool is_busy_ = false;            ///< the last look executed requests
};

}  // namespace polypath::device
