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

/// Those of the first library, and of the others that carry something. A call that the chosen one
/// does not have is the first's; what that has not, it says no, and it is composed.
class AnyBackend::Ranks {
  template <typename Body>
  decltype(auto) with_first(const Body& body) const {
    return Libraries::with(routes_.first(), [&]<typename B>(std::type_identity<B>) {
      return body(*std::get<std::unique_ptr<typename B::Ranks>>(its_));
    });
  }
  /// With no answer it did it.
  template <typename Call, typename Its>
  static bool done(const Call& call, Its& its) {
    if constexpr (std::is_void_v<std::invoke_result_t<const Call&, Its&>>) {
      call(its);
      return true;
    } else {
      return call(its);
    }
  }
  template <typename Call>
  static auto reduction(Element element, ReductionOperator op, const Call& call) {
    return [element, op, call]<typename Its>(Its& its) {
      return Its::reduces(element, op) && done(call, its);
    };
  }

 public:
  /// By the first library alone, until route() was called.
  explicit Ranks(World* world) : world_(world), routes_(world->first_) {}

  [[nodiscard]] bool is_one_sided() const noexcept {
    return Libraries::with(routes_.first(),
                           []<typename B>(std::type_identity<B>) { return B::kOneSided; });
  }
  [[nodiscard]] int rank() const noexcept {
    return with_first([](const auto& its) { return its.rank(); });
  }
  [[nodiscard]] int size() const noexcept {
    return with_first([](const auto& its) { return its.size(); });
  }
  [[nodiscard]] std::unique_ptr<Ranks> split(int color, int key) {
    auto part = std::make_unique<Ranks>(world_);
    const bool is_in = part->take(*this, routes_.first(), color, key);
    // Who is in a part, a first library that tells ranks on the host knows.
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
    with_first([stream](auto& its) { its.barrier(stream); });
  }
  /// Of one-sided ones.
  void exchange(const void* mine, void* all, std::size_t bytes) {
    with_first([=](auto& its) {
      if constexpr (requires { its.exchange(mine, all, bytes); }) its.exchange(mine, all, bytes);
    });
  }
  /// Of the first library.
  [[nodiscard]] const char* name() const noexcept { return world_->name(); }
  /// What kernels of the first library communicate by. POLYPATH_NOT_SUPPORTED: it has none.
  [[nodiscard]] void* to_device() {
    return with_first([this](auto& its) -> void* {
      if constexpr (requires { its.to_device(); }) return its.to_device();
      throw error(POLYPATH_NOT_SUPPORTED,
                  (std::string("toDevice: kernels do not communicate over ") + name() +
                   "; they do over polypath, gpuccl and gpushmem (POLYPATH_BACKEND)")
                      .c_str());
    });
  }

  bool all_gather(const void* send, void* recv, std::size_t bytes, Stream stream) {
    return offered(POLYPATH_COMM_ALL_GATHER, bytes * static_cast<std::size_t>(size()),
                   [=](auto& its) -> decltype(its.all_gather(send, recv, bytes, stream)) {
                     return its.all_gather(send, recv, bytes, stream);
                   });
  }
  bool all_to_all(const void* send, void* recv, std::size_t bytes, Stream stream) {
    return offered(POLYPATH_COMM_ALL_TO_ALL, bytes * static_cast<std::size_t>(size()),
                   [=](auto& its) -> decltype(its.all_to_all(send, recv, bytes, stream)) {
                     return its.all_to_all(send, recv, bytes, stream);
                   });
  }
  bool broadcast(void* buffer, std::size_t bytes, int root, Stream stream) {
    return offered(POLYPATH_COMM_BROADCAST, bytes,
                   [=](auto& its) -> decltype(its.broadcast(buffer, bytes, root, stream)) {
                     return its.broadcast(buffer, bytes, root, stream);
                   });
  }
  /// Which of them a library has, it says itself.
  static constexpr bool reduces(Element, ReductionOperator) { return true; }
  bool all_reduce(const void* send, void* recv, std::size_t count, Element element,
                  ReductionOperator op, Stream stream) {
    return offered(POLYPATH_COMM_ALLREDUCE, count * bytes_of(element),
                   reduction(element, op, [=](auto& its) {
                     return its.all_reduce(send, recv, count, element, op, stream);
                   }));
  }
  bool reduce(const void* send, void* recv, std::size_t count, Element element,
              ReductionOperator op, int root, Stream stream) {
    return offered(POLYPATH_COMM_REDUCE, count * bytes_of(element),
                   reduction(element, op, [=](auto& its) {
                     return its.reduce(send, recv, count, element, op, root, stream);
                   }));
  }

 private:
  friend class World;
  friend class Group;

  template <typename B>
  [[nodiscard]] std::unique_ptr<typename B::Ranks>& of() {
    return std::get<std::unique_ptr<typename B::Ranks>>(its_);
  }
  template <typename B>
  [[nodiscard]] const typename B::Ranks& get() const {
    return *std::get<std::unique_ptr<typename B::Ranks>>(its_);
  }
  void route(detail::Routes routes, std::vector<int> in_world) {
    routes_ = std::move(routes);
    in_world_ = std::move(in_world);
  }
  /// What carries this: both sides of a message say the same, as both know all that it depends on.
  [[nodiscard]] int library_of(std::size_t bytes, bool of_collective) const noexcept {
    return of_collective ? routes_.first() : routes_.at(POLYPATH_COMM_POST, bytes);
  }

  /// Of one library; whether this rank is in the part.
  bool take(Ranks& whole, int library, int color, int key) {
    return Libraries::with(library, [&]<typename B>(std::type_identity<B>) {
      of<B>() = whole.of<B>()->split(color, key);
      return of<B>() != nullptr;
    });
  }
  /// Ranks of the world, in the part's order. Collective.
  std::vector<int> members_of_part(int color, int key) {
    struct Wish {
      int color;
      int key;
      int rank;
    };
    const Wish mine{color, key, rank()};
    std::vector<Wish> all(in_world_.size());
    exchange(&mine, all.data(), sizeof mine);
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
      const bool is_done = Libraries::with(library, [&]<typename B>(std::type_identity<B>) {
        if constexpr (std::is_invocable_v<const Call&, typename B::Ranks&>)
          return done(call, *of<B>());
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
  Libraries::Ranks its_;
};

inline AnyBackend::Ranks AnyBackend::World::ranks() {
  Ranks all(this);
  for (int library = 0; library < Libraries::kCount; ++library)
    Libraries::with(library, [&]<typename B>(std::type_identity<B>) {
      if (of<B>() != nullptr) all.of<B>() = std::make_unique<typename B::Ranks>(of<B>()->ranks());
    });
  std::vector<int> in_world;
  for (int rank = 0; rank < all.size(); ++rank) in_world.push_back(rank);
  all.route(routes_, std::move(in_world));
  return all;
}

/// A group of each library that has something in it, begun with the first thing. At the end first
/// what waits for nobody, the posts of a one-sided first; then messages that two sides have to come
/// to; then what waits for posts. So nothing waits for what comes later in the group, here or on
/// another rank.
class AnyBackend::Group {
 public:
  explicit Group(World& world) : world_(world) {}

  void start(Stream) { is_open_ = true; }
  void post(const Ranks& ranks, const PostArgs& posted, Stream stream) {
    const int library = ranks.library_of(posted.bytes, posted.of_collective);
    if (library != world_.first_)
      require(posted.dst, posted.bytes, posted.signal, "Post: dest", "Post: signal");
    Libraries::with(library, [&]<typename B>(std::type_identity<B>) {
      group<B>(sends_, stream).post(ranks.get<B>(), posted, stream);
    });
    if (!posted.of_collective) world_.uses_.note(POLYPATH_COMM_POST, library, posted.bytes);
  }
  void acknowledge(const Ranks& ranks, const AcknowledgeArgs& acknowledged, Stream stream) {
    const int library = ranks.library_of(acknowledged.bytes, acknowledged.of_collective);
    if (library != world_.first_)
      require(acknowledged.dst, acknowledged.bytes, acknowledged.signal, "Acknowledge: dest",
              "Acknowledge: signal");
    Libraries::with(library, [&]<typename B>(std::type_identity<B>) {
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
    Libraries::Groups its;
    std::array<bool, Libraries::kCount> is_started{};
  };

  /// What a one-sided first would refuse is refused whoever carries it.
  void require(const void* dest, std::size_t bytes, const std::uint64_t* signal,
               const char* what_dest, const char* what_signal) const {
    Libraries::with(world_.first_, [&]<typename B>(std::type_identity<B>) {
      if constexpr (B::kOneSided) {
        world_.of<B>()->require(dest, bytes, what_dest);
        world_.of<B>()->require(signal, sizeof *signal, what_signal);
      }
    });
  }

  /// Started when this group is open.
  template <typename B>
  typename B::Group& group(Kind& kind, Stream stream) {
    auto& its = std::get<std::unique_ptr<typename B::Group>>(kind.its);
    if (its == nullptr) its = std::make_unique<typename B::Group>(*world_.of<B>());
    bool& is_started = kind.is_started[number<B>()];
    if (is_open_ && !is_started) {
      its->start(stream);
      is_started = true;
    }
    return *its;
  }
  template <typename B>
  void end(Kind& kind, Stream stream) {
    if (!std::exchange(kind.is_started[number<B>()], false)) return;
    std::get<std::unique_ptr<typename B::Group>>(kind.its)->end(stream);
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
