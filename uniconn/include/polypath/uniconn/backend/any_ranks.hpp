// AnyBackend's communicators and groups: each holds those of the libraries that AnyBackend has at
// hand, and routes what it is given. any.hpp includes it.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "polypath/uniconn/backend/any.hpp"

namespace polypath::uniconn {
#if UNICONN_ANY_HAS_MPI
inline namespace any_with_mpi {
#else
inline namespace any_without_mpi {
#endif

/// The ranks of the first library, and of the others that carry something. A call that the chosen
/// one does not have goes to the first; what that lacks as well is composed.
class AnyBackend::Ranks {
  template <typename Body>
  decltype(auto) with_first(const Body& body) const {
    return Libraries::visit(routes_.first(), [&]<typename B>(std::type_identity<B>) {
      return body(*std::get<std::unique_ptr<typename B::Ranks>>(ranks_));
    });
  }
  /// With no answer it did it.
  template <typename Call, typename BackendRanks>
  static bool done(const Call& call, BackendRanks& ranks) {
    if constexpr (std::is_void_v<std::invoke_result_t<const Call&, BackendRanks&>>) {
      call(ranks);
      return true;
    } else {
      return call(ranks);
    }
  }
  template <typename Call>
  static auto reduction(Element element, ReductionOperator op, const Call& call) {
    return [element, op, call]<typename BackendRanks>(BackendRanks& ranks) {
      return BackendRanks::reduces(element, op) && done(call, ranks);
    };
  }

 public:
  /// By the first library alone, until route() was called.
  explicit Ranks(World* world) : world_(world), routes_(world->first_) {}

  [[nodiscard]] bool is_one_sided() const noexcept {
    return Libraries::visit(routes_.first(),
                            []<typename B>(std::type_identity<B>) { return B::kOneSided; });
  }
  [[nodiscard]] int rank() const noexcept {
    return with_first([](const auto& ranks) { return ranks.rank(); });
  }
  [[nodiscard]] int size() const noexcept {
    return with_first([](const auto& ranks) { return ranks.size(); });
  }
  [[nodiscard]] std::unique_ptr<Ranks> split(int color, int key) {
    auto part = std::make_unique<Ranks>(world_);
    const bool is_in = part->take(*this, routes_.first(), color, key);
    // The members of a part: a first library that exchanges data on the host knows them.
    std::vector<int> members;
    if (world_->has_routes() && !in_world_.empty() && is_one_sided())
      members = members_of_part(color, key);
    if (!members.empty()) {
      for (int library = 0; library < Libraries::kCount; ++library)
        if (library != routes_.first() && detail::has(world_->usable_, library))
          part->take(*this, library, color, key);
      if (is_in) part->route(world_->routes_of(members), members);
    }
    return is_in ? std::move(part) : nullptr;
  }
  void barrier(Stream stream) {
    with_first([stream](auto& ranks) { ranks.barrier(stream); });
  }
  /// For one-sided backends.
  void exchange(const void* own, void* all, std::size_t bytes) {
    with_first([=](auto& ranks) {
      if constexpr (requires { ranks.exchange(own, all, bytes); }) ranks.exchange(own, all, bytes);
    });
  }
  /// The name of the first library.
  [[nodiscard]] const char* name() const noexcept { return world_->name(); }
  /// What kernels of the first library communicate by. POLYPATH_NOT_SUPPORTED: it has none.
  [[nodiscard]] void* to_device() {
    return with_first([this](auto& ranks) -> void* {
      if constexpr (requires { ranks.to_device(); }) return ranks.to_device();
      throw error(POLYPATH_NOT_SUPPORTED,
                  (std::string("toDevice: kernels do not communicate over ") + name() +
                   "; they do over polypath, gpuccl and gpushmem (POLYPATH_BACKEND)")
                      .c_str());
    });
  }

  bool all_gather(const void* send, void* recv, std::size_t bytes, Stream stream) {
    return offered(POLYPATH_COMM_ALL_GATHER, bytes * static_cast<std::size_t>(size()),
                   [=](auto& ranks) -> decltype(ranks.all_gather(send, recv, bytes, stream)) {
                     return ranks.all_gather(send, recv, bytes, stream);
                   });
  }
  bool all_to_all(const void* send, void* recv, std::size_t bytes, Stream stream) {
    return offered(POLYPATH_COMM_ALL_TO_ALL, bytes * static_cast<std::size_t>(size()),
                   [=](auto& ranks) -> decltype(ranks.all_to_all(send, recv, bytes, stream)) {
                     return ranks.all_to_all(send, recv, bytes, stream);
                   });
  }
  bool broadcast(void* buffer, std::size_t bytes, int root, Stream stream) {
    return offered(POLYPATH_COMM_BROADCAST, bytes,
                   [=](auto& ranks) -> decltype(ranks.broadcast(buffer, bytes, root, stream)) {
                     return ranks.broadcast(buffer, bytes, root, stream);
                   });
  }
  /// Which of them a library has, it says itself.
  static constexpr bool reduces(Element, ReductionOperator) { return true; }
  bool all_reduce(const void* send, void* recv, std::size_t count, Element element,
                  ReductionOperator op, Stream stream) {
    return offered(POLYPATH_COMM_ALLREDUCE, count * bytes_of(element),
                   reduction(element, op, [=](auto& ranks) {
                     return ranks.all_reduce(send, recv, count, element, op, stream);
                   }));
  }
  bool reduce(const void* send, void* recv, std::size_t count, Element element,
              ReductionOperator op, int root, Stream stream) {
    return offered(POLYPATH_COMM_REDUCE, count * bytes_of(element),
                   reduction(element, op, [=](auto& ranks) {
                     return ranks.reduce(send, recv, count, element, op, root, stream);
                   }));
  }

 private:
  friend class World;
  friend class Group;

  template <typename B>
  [[nodiscard]] std::unique_ptr<typename B::Ranks>& backend_ranks() {
    return std::get<std::unique_ptr<typename B::Ranks>>(ranks_);
  }
  template <typename B>
  [[nodiscard]] const typename B::Ranks& get() const {
    return *std::get<std::unique_ptr<typename B::Ranks>>(ranks_);
  }
  void route(detail::Routes routes, std::vector<int> in_world) {
    routes_ = std::move(routes);
    in_world_ = std::move(in_world);
  }
  /// What carries this: both sides of a message say the same, as both know all that it depends on.
  [[nodiscard]] int library_of(std::size_t bytes, bool of_collective) const noexcept {
    return of_collective ? routes_.first() : routes_.at(POLYPATH_COMM_POST, bytes);
  }

  /// Splits the ranks of one library. True: this rank is in the part.
  bool take(Ranks& whole, int library, int color, int key) {
    return Libraries::visit(library, [&]<typename B>(std::type_identity<B>) {
      backend_ranks<B>() = whole.backend_ranks<B>()->split(color, key);
      return backend_ranks<B>() != nullptr;
    });
  }
  /// Ranks of the world, in the part's order. Collective.
  std::vector<int> members_of_part(int color, int key) {
    struct Wish {
      int color;
      int key;
      int rank;
    };
    const Wish own_wish{color, key, rank()};
    std::vector<Wish> all(in_world_.size());
    exchange(&own_wish, all.data(), sizeof own_wish);
    std::erase_if(all, [color](const Wish& wish) { return wish.color != color; });
    std::ranges::sort(all, {}, [](const Wish& wish) { return std::pair(wish.key, wish.rank); });
    std::vector<int> members;
    for (const Wish& wish : all) members.push_back(in_world_[static_cast<std::size_t>(wish.rank)]);
    return members;
  }

  /// By the one that it is routed to, or by the first.
  template <typename Call>
  bool offered(int operation, std::size_t bytes, const Call& call) {
    const int routed = routes_.at(operation, bytes);
    for (const int library : {routed, routes_.first()}) {
      const bool is_done = Libraries::visit(library, [&]<typename B>(std::type_identity<B>) {
        if constexpr (std::is_invocable_v<const Call&, typename B::Ranks&>)
          return done(call, *backend_ranks<B>());
        return false;
      });
      if (is_done) world_->uses_.note(operation, library, bytes);
      if (is_done || library == routes_.first()) return is_done;
    }
    return false;
  }

  World* world_;  // outlives it: the RankSession holds both
  detail::Routes routes_;
  std::vector<int> in_world_;  // by rank; of parts of a two-sided first none
  Libraries::Ranks ranks_;
};

inline AnyBackend::Ranks AnyBackend::World::ranks() {
  Ranks all(this);
  for (int library = 0; library < Libraries::kCount; ++library)
    Libraries::visit(library, [&]<typename B>(std::type_identity<B>) {
      if (world<B>() != nullptr)
        all.backend_ranks<B>() = std::make_unique<typename B::Ranks>(world<B>()->ranks());
    });
  std::vector<int> in_world;
  for (int rank = 0; rank < all.size(); ++rank) in_world.push_back(rank);
  all.route(routes_, std::move(in_world));
  return all;
}

/// A group of each library that has something in it, begun with the first thing. At the end first
/// what waits for no other rank, the posts of a one-sided first; then messages that two sides have
/// to come to; then what waits for posts. So nothing waits for what comes later in the group, here
/// or on another rank.
class AnyBackend::Group {
 public:
  explicit Group(World& world) : world_(world) {}

  void start(Stream) { is_open_ = true; }
  void post(const Ranks& ranks, const PostArgs& posted, Stream stream) {
    const int library = ranks.library_of(posted.bytes, posted.of_collective);
    if (library != world_.first_)
      require(posted.dst, posted.bytes, posted.signal, "Post: dest", "Post: signal");
    Libraries::visit(library, [&]<typename B>(std::type_identity<B>) {
      group<B>(sends_, stream).post(ranks.get<B>(), posted, stream);
    });
    if (!posted.of_collective) world_.uses_.note(POLYPATH_COMM_POST, library, posted.bytes);
  }
  void acknowledge(const Ranks& ranks, const AcknowledgeArgs& acknowledged, Stream stream) {
    const int library = ranks.library_of(acknowledged.bytes, acknowledged.of_collective);
    if (library != world_.first_)
      require(acknowledged.dst, acknowledged.bytes, acknowledged.signal, "Acknowledge: dest",
              "Acknowledge: signal");
    Libraries::visit(library, [&]<typename B>(std::type_identity<B>) {
      group<B>(B::kOneSided ? waits_ : sends_, stream)
          .acknowledge(ranks.get<B>(), acknowledged, stream);
    });
    if (!acknowledged.of_collective)
      world_.uses_.note(detail::UseCounts::kAcknowledge, library, acknowledged.bytes);
  }
  void end(Stream stream) {
    is_open_ = false;
    try {
      for (const bool is_one_sided : {true, false})
        Libraries::each([&]<typename B>(std::type_identity<B>) {
          if (B::kOneSided == is_one_sided) end<B>(sends_, stream);
        });
      Libraries::each([&]<typename B>(std::type_identity<B>) { end<B>(waits_, stream); });
    } catch (...) {
      // The next group begins empty.
      sends_ = {};
      waits_ = {};
      throw;
    }
  }

 private:
  struct Kind {
    Libraries::Groups groups;
    std::array<bool, Libraries::kCount> is_started{};
  };

  /// What a one-sided first would refuse is refused for any carrier.
  void require(const void* dest, std::size_t bytes, const std::uint64_t* signal,
               const char* what_dest, const char* what_signal) const {
    Libraries::visit(world_.first_, [&]<typename B>(std::type_identity<B>) {
      if constexpr (B::kOneSided) {
        world_.world<B>()->require(dest, bytes, what_dest);
        world_.world<B>()->require(signal, sizeof *signal, what_signal);
      }
    });
  }

  /// Started when this group is open.
  template <typename B>
  typename B::Group& group(Kind& kind, Stream stream) {
    auto& backend_group = std::get<std::unique_ptr<typename B::Group>>(kind.groups);
    if (backend_group == nullptr)
      backend_group = std::make_unique<typename B::Group>(*world_.world<B>());
    bool& is_started = kind.is_started[number<B>()];
    if (is_open_ && !is_started) {
      backend_group->start(stream);
      is_started = true;
    }
    return *backend_group;
  }
  template <typename B>
  void end(Kind& kind, Stream stream) {
    if (!std::exchange(kind.is_started[number<B>()], false)) return;
    std::get<std::unique_ptr<typename B::Group>>(kind.groups)->end(stream);
  }
  template <typename B>
  static std::size_t number() {
    return static_cast<std::size_t>(detail::library_of(B::kName));
  }

  World& world_;
  bool is_open_ = false;
  Kind sends_;
  Kind waits_;  // of one-sided ones
};

}  // inline namespace
}  // namespace polypath::uniconn
