// AnyBackend: one program for all libraries; which, SetDevice chooses, the same on all ranks.
//
//   POLYPATH_BACKEND=NAME   polypath, gpuccl, gpushmem or mpi: that one, or an error that says what
//                           is missing
//   unset, or empty         the first that these ranks have: polypath (ranks of one node that reach
//                           each other's memory), NCCL, MPI
//
// Environment::BackendName and BackendReason say which, and why. Semantics are those of the library
// (docs/uniconn.md): what has to run on all acknowledges each post once, with the count.
//
// MPI is among them where its headers are: when mpi.h, or backend/mpi.hpp, was included before, or
// with -DUNICONN_WITH_MPI=1. Then ranks that mpirun started meet by MPI, whatever the choice.
#pragma once

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "polypath/uniconn/backend/choice.hpp"
#include "polypath/uniconn/backend/gpuccl.hpp"
#include "polypath/uniconn/backend/gpushmem.hpp"
#include "polypath/uniconn/backend/polypath.hpp"
#if defined(MPI_VERSION) || (defined(UNICONN_WITH_MPI) && UNICONN_WITH_MPI)
#include "polypath/uniconn/backend/mpi.hpp"
#define UNICONN_ANY_HAS_MPI 1
#else
#define UNICONN_ANY_HAS_MPI 0
#endif

namespace polypath::uniconn {
namespace detail {

/// Backends by number, as library_names has them.
template <typename... Backends>
struct Several {
  using World = std::variant<std::monostate, typename Backends::World...>;
  using Ranks = std::variant<typename Backends::Ranks...>;
  using Group = std::variant<std::monostate, typename Backends::Group...>;

  /// Calls `body` with the type, as a std::type_identity.
  template <typename Body>
  static decltype(auto) with(int library, const Body& body) {
    return with_first<Body, Backends...>(library, body);
  }

 private:
  template <typename Body, typename First, typename... Others>
  static decltype(auto) with_first(int library, const Body& body) {
    if constexpr (sizeof...(Others) > 0) {
      if (library != 0) return with_first<Body, Others...>(library - 1, body);
    }
    return body(std::type_identity<First>{});
  }
};

}  // namespace detail

// Programs with MPI and without are not mixed: the type is another one.
#if UNICONN_ANY_HAS_MPI
inline namespace any_with_mpi {
#else
inline namespace any_without_mpi {
#endif

struct AnyBackend {
  static constexpr const char* kName = "any";
#if UNICONN_ANY_HAS_MPI
  static constexpr bool kHasMpi = true;
  using Libraries = detail::Several<PolypathBackend, GpucclBackend, GpushmemBackend, MPIBackend>;
#else
  static constexpr bool kHasMpi = false;
  using Libraries = detail::Several<PolypathBackend, GpucclBackend, GpushmemBackend>;
#endif
  /// Whether the chosen one does, World says.
  static constexpr bool launches(LaunchMode) { return true; }
  static Bootstrap bootstrap([[maybe_unused]] int argc, [[maybe_unused]] char** argv) {
#if UNICONN_ANY_HAS_MPI
    const auto is_set = [](const char* name) { return std::getenv(name) != nullptr; };
    if (detail::library_of(detail::Offer::wanted_here()) == 3 ||
        (!is_set("RANK") && (is_set("OMPI_COMM_WORLD_SIZE") || is_set("PMI_SIZE"))))
      return MPIBackend::bootstrap(argc, argv);
#endif
    return Bootstrap::environment();
  }

  class World;
  class Ranks;
  class Group;
};

class AnyBackend::World {
  template <typename Body>
  decltype(auto) with(const Body& body) const {
    return Libraries::with(library_, body);
  }
  template <typename B>
  [[nodiscard]] typename B::World& of() {
    return *std::get_if<typename B::World>(&its_);
  }

 public:
  World(const Bootstrap& bootstrap, polypath_context* engine, const detail::Cuda& cuda,
        const detail::Device& gpu) {
    const detail::Choice choice = detail::choice_of(bootstrap.gather(offer_of(bootstrap)));
    const auto begin = [&](int library) {
      library_ = library;
      Libraries::with(library, [&]<typename B>(std::type_identity<B>) {
        its_.template emplace<typename B::World>(bootstrap, engine, cuda, gpu);
      });
    };
    if (choice.is_wanted) {
      begin(choice.candidates.front());
      reason_ = std::string(name()) + ": POLYPATH_BACKEND says so";
      return;
    }
    std::string passed_over = choice.passed_over;
    for (const int library : choice.candidates) {
      detail::Offer::Text failure{};
      try {
        begin(library);
      } catch (const error& thrown) {
        detail::Offer::write(failure, thrown.what());
      }
      const auto failures = bootstrap.gather(failure);
      const auto first =
          std::ranges::find_if(failures, [](const auto& its) { return its[0] != '\0'; });
      if (first == failures.end()) {
        reason_ = std::string(name()) + ": " + what_is_good_about(library);
        if (!passed_over.empty()) reason_ += "; " + passed_over;
        return;
      }
      its_.emplace<std::monostate>();
      detail::pass_over(passed_over, library, first->data());
    }
    throw error(POLYPATH_NOT_SUPPORTED,
                ("AnyBackend: no library works for these ranks: " + passed_over).c_str());
  }

  [[nodiscard]] const char* name() const noexcept {
    return detail::library_names[static_cast<std::size_t>(library_)];
  }
  [[nodiscard]] const std::string& reason() const noexcept { return reason_; }

  /// POLYPATH_NOT_SUPPORTED: the chosen one does not launch this.
  void require(LaunchMode mode) const {
    if (with([mode]<typename B>(std::type_identity<B>) { return B::launches(mode); })) return;
    constexpr std::array<const char*, 3> kModes{"PureHost", "PartialDevice", "PureDevice"};
    const std::string wanted = kModes[static_cast<std::size_t>(mode)];
    std::string possible;
    std::string others;
    for (std::size_t i = 0; i < kModes.size(); ++i)
      if (with([i]<typename B>(std::type_identity<B>) {
            return B::launches(static_cast<LaunchMode>(i));
          }))
        possible += (possible.empty() ? "" : ", ") + std::string(kModes[i]);
    for (int library = 0; library < (kHasMpi ? 4 : 3); ++library)
      if (Libraries::with(library,
                          [mode]<typename B>(std::type_identity<B>) { return B::launches(mode); }))
        others += (others.empty() ? "" : ", ") +
                  std::string(detail::library_names[static_cast<std::size_t>(library)]);
    throw error(POLYPATH_NOT_SUPPORTED,
                (wanted + ": the backend is " + name() + ", which launches " + possible + "; " +
                 wanted + " is of " + others + " (POLYPATH_BACKEND)")
                    .c_str());
  }

  void* allocate(std::size_t bytes) {
    return with([&]<typename B>(std::type_identity<B>) { return of<B>().allocate(bytes); });
  }
  void release(void* address) {
    with([&]<typename B>(std::type_identity<B>) { of<B>().release(address); });
  }
  void synchronize(Stream stream) {
    with([&]<typename B>(std::type_identity<B>) { of<B>().synchronize(stream); });
  }
  Ranks ranks();

 private:
  friend class Ranks;
  friend class Group;

  /// What this rank has.
  static detail::Offer offer_of(const Bootstrap& bootstrap) {
    detail::Offer offer;
    detail::Offer::write(offer.wanted, detail::Offer::wanted_here());
    const auto lacks = [&offer](const char* name, std::string_view why) {
      detail::Offer::write(offer.lacks[static_cast<std::size_t>(detail::library_of(name))], why);
    };
    const auto is_there = [&lacks](const char* name, const auto& open) {
      try {
        static_cast<void>(open());
      } catch (const error& thrown) {
        lacks(name, thrown.what());
      }
    };
    if (detail::node_place(bootstrap).size < bootstrap.size())
      lacks("polypath", "ranks are on several nodes");
    is_there("gpuccl", &detail::Nccl::get);
    is_there("gpushmem", &detail::Nvshmem::get);
#if UNICONN_ANY_HAS_MPI
    if (bootstrap.function() != &detail::mpi_exchange)
      lacks("mpi",
            "its ranks are MPI's: start them by mpirun, or give Environment "
            "mpi_bootstrap()");
#else
    lacks("mpi",
          "this program has no code for it: build with mpi.h included before "
          "polypath/uniconn/backend/any.hpp, or -DUNICONN_WITH_MPI=1");
#endif
    return offer;
  }
  static const char* what_is_good_about(int library) {
    if (library == 0) return "ranks are of one node, and reach each other's memory";
    return "the first that these ranks have";
  }

  int library_ = 0;
  std::string reason_;
  Libraries::World its_;
};

/// A call that the chosen library does not have says no, and is composed.
class AnyBackend::Ranks {
 public:
  explicit Ranks(Libraries::Ranks its) : its_(std::move(its)) {}

  [[nodiscard]] bool is_one_sided() const noexcept {
    return Libraries::with(library(),
                           []<typename B>(std::type_identity<B>) { return B::kOneSided; });
  }
  [[nodiscard]] int rank() const noexcept {
    return std::visit([](const auto& its) { return its.rank(); }, its_);
  }
  [[nodiscard]] int size() const noexcept {
    return std::visit([](const auto& its) { return its.size(); }, its_);
  }
  [[nodiscard]] std::unique_ptr<Ranks> split(int color, int key) {
    return std::visit(
        [=](auto& its) -> std::unique_ptr<Ranks> {
          auto part = its.split(color, key);
          return part == nullptr ? nullptr : std::make_unique<Ranks>(std::move(*part));
        },
        its_);
  }
  void barrier(Stream stream) {
    std::visit([stream](auto& its) { its.barrier(stream); }, its_);
  }
  /// Of one-sided ones.
  void exchange(const void* mine, void* all, std::size_t bytes) {
    std::visit(
        [=](auto& its) {
          if constexpr (requires { its.exchange(mine, all, bytes); })
            its.exchange(mine, all, bytes);
        },
        its_);
  }
  [[nodiscard]] void* to_device() {
    return std::visit(
        [](auto& its) -> void* {
          if constexpr (requires { its.to_device(); }) return its.to_device();
          return nullptr;
        },
        its_);
  }

  bool all_gather(const void* send, void* recv, std::size_t bytes, Stream stream) {
    return offered([=](auto& its) -> decltype(its.all_gather(send, recv, bytes, stream)) {
      return its.all_gather(send, recv, bytes, stream);
    });
  }
  bool all_to_all(const void* send, void* recv, std::size_t bytes, Stream stream) {
    return offered([=](auto& its) -> decltype(its.all_to_all(send, recv, bytes, stream)) {
      return its.all_to_all(send, recv, bytes, stream);
    });
  }
  bool broadcast(void* buffer, std::size_t bytes, int root, Stream stream) {
    return offered([=](auto& its) -> decltype(its.broadcast(buffer, bytes, root, stream)) {
      return its.broadcast(buffer, bytes, root, stream);
    });
  }
  /// Which of them the chosen one has, it says itself.
  static constexpr bool reduces(Element, ReductionOperator) { return true; }
  bool all_reduce(const void* send, void* recv, std::size_t count, Element element,
                  ReductionOperator op, Stream stream) {
    return reduced(element, op, [=](auto& its) {
      return its.all_reduce(send, recv, count, element, op, stream);
    });
  }
  bool reduce(const void* send, void* recv, std::size_t count, Element element,
              ReductionOperator op, int root, Stream stream) {
    return reduced(element, op, [=](auto& its) {
      return its.reduce(send, recv, count, element, op, root, stream);
    });
  }

 private:
  friend class Group;

  [[nodiscard]] int library() const noexcept { return static_cast<int>(its_.index()); }
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
  bool offered(const Call& call) {
    return std::visit(
        [&call]<typename Its>(Its& its) {
          if constexpr (std::is_invocable_v<const Call&, Its&>) return done(call, its);
          return false;
        },
        its_);
  }
  template <typename Call>
  bool reduced(Element element, ReductionOperator op, const Call& call) {
    return std::visit(
        [&]<typename Its>(Its& its) { return Its::reduces(element, op) && done(call, its); }, its_);
  }

  Libraries::Ranks its_;
};

inline AnyBackend::Ranks AnyBackend::World::ranks() {
  return with([&]<typename B>(std::type_identity<B>) { return Ranks(of<B>().ranks()); });
}

class AnyBackend::Group {
  template <typename B>
  [[nodiscard]] typename B::Group& of() {
    return *std::get_if<typename B::Group>(&its_);
  }

 public:
  explicit Group(World& world) : library_(world.library_) {
    Libraries::with(library_, [&]<typename B>(std::type_identity<B>) {
      its_.template emplace<typename B::Group>(world.of<B>());
    });
  }
  void start(Stream stream) {
    Libraries::with(library_, [&]<typename B>(std::type_identity<B>) { of<B>().start(stream); });
  }
  void post(const Ranks& ranks, const Posted& posted, Stream stream) {
    Libraries::with(library_, [&]<typename B>(std::type_identity<B>) {
      of<B>().post(*std::get_if<typename B::Ranks>(&ranks.its_), posted, stream);
    });
  }
  void acknowledge(const Ranks& ranks, const Acknowledged& acknowledged, Stream stream) {
    Libraries::with(library_, [&]<typename B>(std::type_identity<B>) {
      of<B>().acknowledge(*std::get_if<typename B::Ranks>(&ranks.its_), acknowledged, stream);
    });
  }
  void end(Stream stream) {
    Libraries::with(library_, [&]<typename B>(std::type_identity<B>) { of<B>().end(stream); });
  }

 private:
  int library_;
  Libraries::Group its_;
};

}  // inline namespace
}  // namespace polypath::uniconn
