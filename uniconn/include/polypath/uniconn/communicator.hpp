// Communicator: ranks that communicate.
#pragma once

#include <memory>
#include <utility>

#include "polypath/uniconn/composed_collectives.hpp"
#include "polypath/uniconn/device_calls.hpp"
#include "polypath/uniconn/environment.hpp"

namespace polypath::uniconn {

template <BackendLibrary B, LaunchMode M>
  requires(B::launches(M))
class Coordinator;

/// Movable, not copyable. Made by all its ranks together, in the same order. Calls for it come from
/// one thread at a time. Streams that still wait when it is destroyed are released, and the next
/// call of the other ranks fails.
template <BackendLibrary B = DefaultBackend>
class Communicator {
 public:
  /// All ranks of the Environment. POLYPATH_INVALID_ARGUMENT: there is none, or SetDevice was not
  /// called.
  Communicator() : job_(detail::Current<B>::get()) {
    state_ = std::make_unique<State>(job_->attached().ranks(), job_->cuda);
  }

  /// Collective: a communicator for the ranks of each color, ordered by key, then by rank. A
  /// negative color: none, which is false as a bool.
  [[nodiscard]] Communicator Split(int color, int key) {
    auto part = ranks().split(color, key);
    return part == nullptr
               ? Communicator(nullptr, nullptr)
               : Communicator(job_, std::make_unique<State>(std::move(*part), job_->cuda));
  }
  explicit operator bool() const noexcept { return state_ != nullptr; }

  // In kernels, too, of what toDevice() gave, with the backend's device header.
  [[nodiscard]] POLYPATH_UNICONN_ANYWHERE int GlobalSize() const {
#if defined(__CUDA_ARCH__)
    return detail::DeviceVerbs<B>::size(this);
#else
    return ranks().size();
#endif
  }
  [[nodiscard]] POLYPATH_UNICONN_ANYWHERE int GlobalRank() const {
#if defined(__CUDA_ARCH__)
    return detail::DeviceVerbs<B>::rank(this);
#else
    return ranks().rank();
#endif
  }

  /// The stream goes on when the streams of all ranks have come to their call. With MPI the host
  /// waits.
  void Barrier(Stream stream = nullptr) { ranks().barrier(stream); }
#if defined(__CUDACC__)
  /// In kernels: one group of each rank comes to it.
  template <ThreadGroup G>
  __device__ void Barrier() const {
    detail::DeviceVerbs<B>::template barrier<G>(this);
  }
#endif

  /// What kernels communicate by, an address of this rank's GPU, as long as this object lives;
  /// null: the backend's kernels cannot. Collective, the first time. They wait as long as the time
  /// limit is then.
  [[nodiscard]] Communicator* toDevice() {
    if constexpr (requires { ranks().to_device(); })
      return static_cast<Communicator*>(ranks().to_device());
    return nullptr;
  }
  /// The same for kernels over C, of a backend that is chosen at run time. POLYPATH_NOT_SUPPORTED:
  /// another one was chosen.
  template <typename C>
    requires requires(typename B::Ranks& ranks) { ranks.name(); }
  [[nodiscard]] Communicator<C>* toDevice() {
    if (std::string(ranks().name()) != C::kName)
      throw error(POLYPATH_NOT_SUPPORTED, (std::string("toDevice: the kernel is over ") + C::kName +
                                           ", and the backend is " + ranks().name())
                                              .c_str());
    return static_cast<Communicator<C>*>(ranks().to_device());
  }

 private:
  template <BackendLibrary C, LaunchMode M>
    requires(C::launches(M))
  friend class Coordinator;

  struct State {
    State(typename B::Ranks backend_ranks, const detail::Cuda& cuda)
        : ranks(std::move(backend_ranks)), scratch(cuda) {}
    typename B::Ranks ranks;
    detail::Scratch scratch;
  };

  Communicator(std::shared_ptr<detail::RankSession<B>> job, std::unique_ptr<State> state)
      : job_(std::move(job)), state_(std::move(state)) {}

  [[nodiscard]] typename B::Ranks& ranks() const {
    if (state_ == nullptr)
      throw error(POLYPATH_INVALID_ARGUMENT, "this rank is not in the communicator: none of Split");
    return state_->ranks;
  }

  std::shared_ptr<detail::RankSession<B>> job_;
  std::unique_ptr<State> state_;  // ends first
};

}  // namespace polypath::uniconn
