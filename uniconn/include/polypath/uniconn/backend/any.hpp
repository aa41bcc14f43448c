// AnyBackend: one program for all libraries; which, SetDevice chooses, the same on all ranks.
//
//   POLYPATH_BACKEND=NAME   polypath, gpuccl, gpushmem or mpi: that one, or an error that says what
//                           is missing
//   unset, empty or auto    the first that these ranks have: polypath (ranks of one node that reach
//                           each other's memory), NCCL, MPI. Next to it those that `polypath tune
//                           comm` found faster on rank 0's node, each for what it is faster at
//                           (routing_table.hpp)
//
// Memory, barriers, launch modes, vector forms and what is composed are the first's. Posts and
// collectives of equal counts go by the table, by size.
//
// Environment::BackendName and BackendReason say which, and why; BackendUses, what went where.
// Semantics are those of the library (docs/uniconn.md): what has to run on all acknowledges each
// post once, with the count.
//
// MPI is among them where its headers are: when mpi.h, or backend/mpi.hpp, was included before, or
// with -DUNICONN_WITH_MPI=1. Then ranks that mpirun started meet by MPI, with any backend.
#pragma once

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "polypath/uniconn/backend/backend_set.hpp"
#include "polypath/uniconn/backend/gpuccl.hpp"
#include "polypath/uniconn/backend/gpushmem.hpp"
#include "polypath/uniconn/backend/polypath.hpp"
#include "polypath/uniconn/backend/routing_table.hpp"
#include "polypath/uniconn/backend/selection.hpp"
#if defined(MPI_VERSION) || (defined(UNICONN_WITH_MPI) && UNICONN_WITH_MPI)
#include "polypath/uniconn/backend/mpi.hpp"
#define UNICONN_ANY_HAS_MPI 1
#else
#define UNICONN_ANY_HAS_MPI 0
#endif

namespace polypath::uniconn {

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
  using Libraries = detail::BackendSet<PolypathBackend, GpucclBackend, GpushmemBackend, MPIBackend>;
#else
  static constexpr bool kHasMpi = false;
  using Libraries = detail::BackendSet<PolypathBackend, GpucclBackend, GpushmemBackend>;
#endif
  /// Whether the first one does, World says.
  static constexpr bool launches(LaunchMode) { return true; }
  static Bootstrap bootstrap([[maybe_unused]] int argc, [[maybe_unused]] char** argv) {
#if UNICONN_ANY_HAS_MPI
    const auto is_set = [](const char* name) { return std::getenv(name) != nullptr; };
    if (detail::library_of(detail::Offer::requested_backend()) == 3 ||
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
  decltype(auto) with_first(const Body& body) const {
    return Libraries::visit(first_, body);
  }
  template <typename B>
  [[nodiscard]] std::unique_ptr<typename B::World>& world() {
    return std::get<std::unique_ptr<typename B::World>>(worlds_);
  }

 public:
  World(const Bootstrap& bootstrap, polypath_context* engine, const detail::Cuda& cuda,
        const detail::Device& gpu) {
    const std::vector<detail::Offer> offers = bootstrap.gather(offer_of(bootstrap));
    const detail::Choice choice = detail::choice_of(offers);
    const auto begin = [&](int library) {
      Libraries::visit(library, [&]<typename B>(std::type_identity<B>) {
        world<B>() = std::make_unique<typename B::World>(bootstrap, engine, cuda, gpu);
      });
    };
    if (choice.is_wanted) {
      first_ = choice.candidates.front();
      begin(first_);
      reason_ = std::string(name()) + ": POLYPATH_BACKEND says so";
      routes_ = detail::Routes(first_);
      return;
    }
    // On all ranks, or on none: the first failure, or "".
    const auto try_to_begin = [&](int library) -> std::string {
      detail::Offer::Text failure{};
      try {
        begin(library);
      } catch (const error& thrown) {
        detail::Offer::write(failure, thrown.what());
      }
      const auto failures = bootstrap.gather(failure);
      const auto it =
          std::ranges::find_if(failures, [](const auto& text) { return text[0] != '\0'; });
      if (it == failures.end()) return "";
      Libraries::visit(library, [&]<typename B>(std::type_identity<B>) { world<B>().reset(); });
      return it->data();
    };
    begin_first(choice, try_to_begin);
    follow_table(bootstrap, engine, gpu, offers, try_to_begin);
  }
  /// What came later ends before the first.
  ~World() {
    Libraries::each([this]<typename B>(std::type_identity<B>) {
      if (detail::library_of(B::kName) != first_) world<B>().reset();
    });
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  [[nodiscard]] const char* name() const noexcept {
    return detail::library_names[static_cast<std::size_t>(first_)];
  }
  [[nodiscard]] const std::string& reason() const noexcept { return reason_; }
  [[nodiscard]] std::vector<BackendUse> uses() const { return uses_.all(); }

  /// POLYPATH_NOT_SUPPORTED: the first one does not launch this.
  void require(LaunchMode mode) const {
    const auto launches = [mode]<typename B>(std::type_identity<B>) { return B::launches(mode); };
    if (with_first(launches))
      return with_first([mode]<typename B>(std::type_identity<B>) {
        if constexpr (requires { B::World::require(mode); }) B::World::require(mode);
      });
    constexpr std::array kModes{LaunchMode::PureHost, LaunchMode::PartialDevice,
                                LaunchMode::PureDevice};
    const std::string requested = name_of(mode);
    std::string possible;
    std::string others;
    for (const LaunchMode each : kModes)
      if (with_first([each]<typename B>(std::type_identity<B>) { return B::launches(each); }))
        possible += (possible.empty() ? "" : ", ") + std::string(name_of(each));
    for (int library = 0; library < Libraries::kCount; ++library)
      if (Libraries::visit(library, launches))
        others += (others.empty() ? "" : ", ") +
                  std::string(detail::library_names[static_cast<std::size_t>(library)]);
    throw error(POLYPATH_NOT_SUPPORTED,
                (requested + ": the backend is " + name() + ", which launches " + possible + "; " +
                 requested + " is of " + others + " (POLYPATH_BACKEND)")
                    .c_str());
  }

  void* allocate(std::size_t bytes) {
    return with_first(
        [&]<typename B>(std::type_identity<B>) { return world<B>()->allocate(bytes); });
  }
  void release(void* address) {
    with_first([&]<typename B>(std::type_identity<B>) { world<B>()->release(address); });
  }
  /// The first ends waits of those that failed; the others say what went wrong with them.
  void synchronize(Stream stream) {
    with_first([&]<typename B>(std::type_identity<B>) { world<B>()->synchronize(stream); });
    Libraries::each([&]<typename B>(std::type_identity<B>) {
      if (world<B>() != nullptr && detail::library_of(B::kName) != first_)
        world<B>()->synchronize(stream);
    });
  }
  Ranks ranks();

 private:
  friend class Ranks;
  friend class Group;

  /// What this rank has.
  static detail::Offer offer_of(const Bootstrap& bootstrap) {
    detail::Offer offer;
    detail::Offer::write(offer.requested, detail::Offer::requested_backend());
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

  template <typename TryToBegin>
  void begin_first(const detail::Choice& choice, const TryToBegin& try_to_begin) {
    std::string passed_over = choice.passed_over;
    for (const int library : choice.candidates) {
      const std::string failure = try_to_begin(library);
      if (failure.empty()) {
        first_ = library;
        reason_ = std::string(name()) + ": " + what_is_good_about(library);
        if (!passed_over.empty()) reason_ += "; " + passed_over;
        return;
      }
      detail::pass_over(passed_over, library, failure);
    }
    throw error(POLYPATH_NOT_SUPPORTED,
                ("AnyBackend: no library works for these ranks: " + passed_over).c_str());
  }

  /// Begins what rank 0's table names, where it works on all ranks, next to the first.
  template <typename TryToBegin>
  void follow_table(const Bootstrap& bootstrap, polypath_context* engine, const detail::Device& gpu,
                    const std::vector<detail::Offer>& offers, const TryToBegin& try_to_begin) {
    routes_ = detail::Routes(first_);
    usable_ = detail::only(first_);
    std::vector<int> gpus = bootstrap.gather(gpu.number());
    // It is of one node.
    if (detail::node_place(bootstrap).size < bootstrap.size()) return;
    detail::BackendTable own_table;
    if (bootstrap.rank() == 0) {
      // As this rank numbers them.
      if (world<PolypathBackend>() != nullptr)
        for (std::size_t rank = 0; rank < gpus.size(); ++rank)
          gpus[rank] = world<PolypathBackend>()->gpu_of(static_cast<int>(rank));
      try {
        own_table = detail::table_here(engine, gpus);
      } catch (const error&) {  // of GPUs that it cannot see it knows nothing
      }
    }
    table_ = detail::BackendTable::of_first(bootstrap, own_table);
    for (int library = 0; library < POLYPATH_BACKEND_COUNT; ++library) {
      std::size_t rows = 0;
      for (const auto& list : table_.lists())
        rows += static_cast<std::size_t>(
            std::ranges::count(list, library, &detail::BackendRow::backend));
      if (rows == 0 || library == first_) continue;
      std::string lack = detail::missing_reason(offers, library);
      if (lack.empty() &&
          Libraries::visit(library, []<typename B>(std::type_identity<B>) { return B::kOneSided; }))
        lack = detail::kOwnMemoryAlone;
      if (lack.empty()) lack = try_to_begin(library);
      const std::string what = std::string(rows == 1 ? " row" : " rows") + " of the table for " +
                               detail::library_names[static_cast<std::size_t>(library)];
      if (lack.empty()) {
        usable_ |= detail::only(library);
        reason_ += "; follows " + std::to_string(rows) + what;
      } else {
        reason_ += "; passes over " + std::to_string(rows) + what + " (" + lack + ")";
      }
    }
    std::vector<int> all;
    for (int rank = 0; rank < bootstrap.size(); ++rank) all.push_back(rank);
    routes_ = routes_of(all);
  }
  [[nodiscard]] detail::Routes routes_of(std::vector<int> in_world) const {
    return {table_.rows_for(std::move(in_world)), usable_, first_};
  }
  [[nodiscard]] bool has_routes() const noexcept { return usable_ != detail::only(first_); }

  int first_ = 0;
  std::string reason_;
  detail::BackendTable table_;     // the same on all ranks
  detail::LibrarySet usable_ = 0;  // the same on all ranks
  detail::Routes routes_;          // of all ranks
  detail::UseCounts uses_;
  Libraries::Worlds worlds_;
};

}  // inline namespace
}  // namespace polypath::uniconn

#include "polypath/uniconn/backend/any_ranks.hpp"
