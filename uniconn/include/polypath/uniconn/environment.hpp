// Environment: the communication library of this process, from its start to its end, and the GPU.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>

#include "polypath/uniconn/bootstrap.hpp"
#include "polypath/uniconn/cuda.hpp"
#include "polypath/uniconn/default_backend.hpp"

namespace polypath::uniconn {
namespace detail {

/// The polypath context of this process, for all Environments in it; it ends with the last.
inline std::shared_ptr<polypath_context> engine() {
  static std::mutex mutex;
  static std::weak_ptr<polypath_context> known;
  const std::lock_guard lock(mutex);
  if (auto existing = known.lock()) return existing;
  // Streams that wait for a value must not hold those that others wait for: before CUDA starts.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  polypath_context* context = nullptr;
  polypath::detail::check(polypath_context_create(nullptr, 0, &context));
  const std::shared_ptr<polypath_context> owner(context, &polypath_context_destroy);
  known = owner;
  return owner;
}

/// What Environment, Communicators, Memory and Coordinators of one rank share. It ends with the
/// last of them.
template <BackendLibrary B>
struct RankSession {
  explicit RankSession(Bootstrap own_bootstrap)
      : bootstrap(std::move(own_bootstrap)),
        node(node_place(bootstrap)),
        context(detail::engine()),
        cuda(context.get()) {}

  /// Attached, or throws.
  typename B::World& attached() {
    if (!world)
      throw error(POLYPATH_INVALID_ARGUMENT,
                  "call Environment::SetDevice first: ranks come together there");
    return *world;
  }

  Bootstrap bootstrap;
  NodePlace node;
  std::shared_ptr<polypath_context> context;
  Cuda cuda;
  std::optional<Device> gpu;
  std::optional<typename B::World> world;  // ends first
};

/// The Environments that there are: of this thread when it has one, else of this process.
template <BackendLibrary B>
struct Current {
  static inline thread_local std::weak_ptr<RankSession<B>> of_thread;
  static inline std::mutex mutex;
  static inline std::weak_ptr<RankSession<B>> of_process;

  static void enter(const std::shared_ptr<RankSession<B>>& job) {
    const std::lock_guard lock(mutex);
    (job->bootstrap.is_thread() ? of_thread : of_process) = job;
  }
  /// Throws when there is one that a new one would hide.
  static void require_none(bool is_thread) {
    const std::lock_guard lock(mutex);
    if (!of_thread.expired() || (!is_thread && !of_process.expired()))
      throw error(POLYPATH_INVALID_ARGUMENT,
                  "there is an Environment already, or what was made by it: destroy that first");
  }
  static std::shared_ptr<RankSession<B>> get() {
    if (auto job = of_thread.lock()) return job;
    const std::lock_guard lock(mutex);
    if (auto job = of_process.lock()) return job;
    throw error(POLYPATH_INVALID_ARGUMENT, "there is no Environment: make one first");
  }
};

}  // namespace detail

/// The first object of a program: it starts the library, and ends it when it started it. One at a
/// time for each rank; of ranks that are threads each has its own, on its own thread. Everything
/// throws polypath::error; nothing ends the process.
///
/// Communicators, Memory and Coordinators find it by themselves: they are made on its thread, or on
/// any thread of a process with one rank.
template <BackendLibrary B = DefaultBackend>
class Environment {
 public:
  /// The ranks that this process's launcher started, as the backend knows them. Collective.
  Environment() : Environment(0, nullptr) {}
  Environment(int argc, char** argv) {
    detail::Current<B>::require_none(false);
    enter(B::bootstrap(argc, argv));
  }
  /// Ranks that meet otherwise. Collective.
  explicit Environment(Bootstrap bootstrap) {
    detail::Current<B>::require_none(bootstrap.is_thread());
    enter(std::move(bootstrap));
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

  /// Whether ranks have come together: SetDevice was called.
  [[nodiscard]] bool IsInit() const noexcept { return job_->world.has_value(); }

  /// Makes this rank's GPU current, and brings the ranks together. Collective; once.
  void SetDevice(int requested) {
    if (job_->gpu)
      throw error(POLYPATH_INVALID_ARGUMENT, "SetDevice: this rank has its GPU already");
    // On all ranks, or on none: a rank that cannot must not leave the others waiting.
    std::optional<error> wrong;
    try {
      job_->gpu.emplace(job_->cuda, requested);
    } catch (const error& thrown) {
      wrong = thrown;
    }
    const std::vector<char> failed = job_->bootstrap.gather(static_cast<char>(wrong ? 1 : 0));
    if (wrong) throw *wrong;
    for (std::size_t rank = 0; rank < failed.size(); ++rank)
      if (failed[rank] != 0) {
        job_->gpu.reset();
        throw error(POLYPATH_COMMUNICATOR_ERROR,
                    ("SetDevice: rank " + std::to_string(rank) + " has no GPU").c_str());
      }
    try {
      job_->world.emplace(job_->bootstrap, job_->context.get(), job_->cuda, *job_->gpu);
    } catch (...) {
      job_->gpu.reset();
      throw;
    }
  }

  /// "polypath", "mpi", "gpuccl" or "gpushmem"; of AnyBackend what SetDevice chose, and "" before.
  [[nodiscard]] std::string BackendName() const {
    if constexpr (requires { job_->world->name(); }) {
      return IsInit() ? job_->world->name() : "";
    } else {
      return B::kName;
    }
  }
  /// Why AnyBackend chose it, for a person; "" before SetDevice, and of a backend that is fixed.
  [[nodiscard]] std::string BackendReason() const {
    if constexpr (requires { job_->world->reason(); }) {
      if (IsInit()) return job_->world->reason();
    }
    return "";
  }

  /// For AnyBackend: what went by which backend so far, without what is composed; none before
  /// SetDevice.
  [[nodiscard]] auto BackendUses() const
    requires requires(const typename B::World& world) { world.uses(); }
  {
    return IsInit() ? job_->world->uses() : decltype(job_->world->uses()){};
  }

  [[nodiscard]] int WorldSize() const noexcept { return job_->bootstrap.size(); }
  [[nodiscard]] int WorldRank() const noexcept { return job_->bootstrap.rank(); }
  [[nodiscard]] int NodeSize() const noexcept { return job_->node.size; }
  [[nodiscard]] int NodeRank() const noexcept { return job_->node.rank; }

 private:
  void enter(Bootstrap bootstrap) {
    job_ = std::make_shared<detail::RankSession<B>>(std::move(bootstrap));
    detail::Current<B>::enter(job_);
  }

  std::shared_ptr<detail::RankSession<B>> job_;
};

}  // namespace polypath::uniconn
