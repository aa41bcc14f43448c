// What a backend is; what is sent and reduced; what is thrown.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "polypath/polypath.hpp"
#include "polypath/uniconn/enums.hpp"

// As cuda.h names it: these headers do without.
struct CUstream_st;

namespace polypath::uniconn {

/// A CUstream, or cudaStream_t.
using Stream = CUstream_st*;

/// What is sent as bytes.
template <typename T>
concept Sendable = std::is_trivially_copyable_v<T>;

template <typename T, ReductionOperator Operator>
concept Reducible = kIsReducible<T, Operator>;

/// A failure of the library of a backend: `code` is that library's.
class backend_error : public polypath::error {
 public:
  backend_error(int code, const std::string& message)
      : error(POLYPATH_COMMUNICATOR_ERROR, message.c_str()), code_(code) {}
  [[nodiscard]] int code() const noexcept { return code_; }

 private:
  int code_;
};

// ---- What a backend is --------------------------------------------------------------------------

/// What Post sends: to `dst` on rank `to`, and after it `value` to the word `signal` there; both
/// are named by this rank's own addresses. A null signal: the data alone.
struct PostArgs {
  const void* src = nullptr;
  void* dst = nullptr;
  std::size_t bytes = 0;
  std::uint64_t* signal = nullptr;
  std::uint64_t value = 0;
  int to = 0;
  bool of_collective = false;  ///< not to be taken for the program's own
  bool of_kernel = false;      ///< a kernel on the stream has sent it: the signal alone
};

/// What Acknowledge waits for: what rank `from` posts to `dst` of this rank.
struct AcknowledgeArgs {
  void* dst = nullptr;
  std::size_t bytes = 0;
  std::uint64_t* signal = nullptr;
  std::uint64_t value = 0;
  int from = 0;
  bool of_collective = false;
  bool of_kernel = false;  ///< a kernel of the other rank's sends it
};

namespace detail {

/// A constant, but of a backend that is chosen at run time.
template <typename B>
constexpr bool is_one_sided(const typename B::Ranks& ranks) {
  if constexpr (requires { ranks.is_one_sided(); }) {
    return ranks.is_one_sided();
  } else {
    return B::kOneSided;
  }
}

}  // namespace detail

/// A communication library, in five verbs.
///
///   attach       Environment::SetDevice. B::World: this rank comes together with all others, on
///                its GPU. B::Ranks: those of a communicator, of which World makes that of all, and
///                split() makes others. Both are destroyed before the library is released.
///   allocate     Memory::Alloc. World::allocate, World::release: memory of this GPU that others'
///                posts may go to. All ranks together, in the same order.
///   post         Group::post: begins to send, after what is on the stream.
///   acknowledge  Group::acknowledge: lets the stream (of MPI the host) wait until it has come.
///   group        Group::start, Group::end: what is posted and acknowledged between is under way
///                together, in no order, and nothing waits for what comes later in the group. What
///                comes on the stream after the end finds all that was acknowledged, and may
///                overwrite all that was posted.
///
/// kOneSided: a post writes to the other rank's memory, whether that rank came or not. Then `dst`
/// is memory of Memory, the signal is needed, and posts without one are done after a barrier of
/// Ranks. Otherwise a post is a send, which an acknowledge of the other rank receives, and signals
/// are not used.
///
/// Everything else is composed of these five (composed_collectives.hpp), but for what a backend's
/// Ranks has itself: all_gather, all_to_all, broadcast, all_reduce, reduce. A new backend is these
/// three classes.
///
/// Launch modes. launches(): those that compile. World::require(mode), where there is one, refuses
/// what this program, or the library that was chosen, has not what it takes for. launch_together()
/// starts a __global__ function of which all blocks run at once; without it CUDA's runtime does.
///
/// Ranks of a backend that is chosen at run time says whether it is one-sided (is_one_sided).
template <typename B>
concept BackendLibrary = requires(
    typename B::World& world, typename B::Ranks& ranks, typename B::Group& group,
    const PostArgs& posted, const AcknowledgeArgs& acknowledged, Stream stream, void* memory) {
  { B::kName } -> std::convertible_to<const char*>;
  { detail::is_one_sided<B>(ranks) } -> std::same_as<bool>;
  { B::launches(LaunchMode::PureHost) } -> std::same_as<bool>;
  { world.allocate(std::size_t{1}) } -> std::same_as<void*>;
  world.release(memory);
  world.synchronize(stream);
  { world.ranks() } -> std::same_as<typename B::Ranks>;
  { ranks.rank() } -> std::same_as<int>;
  { ranks.size() } -> std::same_as<int>;
  ranks.split(0, 0);
  ranks.barrier(stream);
  group.start(stream);
  group.post(ranks, posted, stream);
  group.acknowledge(ranks, acknowledged, stream);
  group.end(stream);
};

}  // namespace polypath::uniconn
