// How communicators of NCCL begin and end, as programs call it.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <optional>

#include "gate/loaded_objects.hpp"
#include "gate/process.hpp"
#include "nccl/creation.hpp"
#include "nccl/groups.hpp"
#include "nccl/real_library.hpp"

using namespace polypath::nccl;
namespace gate = polypath::gate;

namespace {

/// For communicators that NCCL makes now, or at the end of the group.
template <typename Make>
int create(std::vector<Creation>&& creations, Make&& make) noexcept {
  Group& group = Group::current();
  std::optional<GroupCreation> together;
  if (!group.is_open()) together.emplace(creations);
  int result = kSuccess;
  {
    const ReentrancyGuard inside;
    result = make();
  }
  if (result != kSuccess && result != kInProgress) return result;
  if (together) {
    const int code = together->finish();
    return code != kSuccess ? code : result;
  }
  for (Creation& creation : creations) group.add(std::move(creation));
  return result;
}

template <typename Make>
int create(const CommKey& key, int rank, int ranks, bool blocks, int gpu, void** comm,
           Make&& make) noexcept {
  std::vector<Creation> creations;
  creations.emplace_back(key, rank, ranks, blocks, gpu);
  creations.back().expect(comm);
  return create(std::move(creations), make);
}

/// For a communicator that is no part of another, on the current GPU.
template <typename Make>
int create_first(const CommKey& key, int rank, int ranks, bool blocks, void** comm,
                 Make&& make) noexcept {
  load_kernels(-1, ranks);
  return create(key, rank, ranks, blocks, -1, comm, make);
}

/// A part of a communicator: by what all of its ranks give alike.
struct Part {
  char how;
  std::uint32_t number;
  std::int32_t which;
};
CommKey part_key(const Communicator& parent, const Part& part) noexcept {
  if (!parent.key.is_known()) return {};
  return parent.key.derived(&part.how, sizeof part.how)
      .derived(&part.number, sizeof part.number)
      .derived(&part.which, sizeof part.which);
}

/// The GPU of a communicator that NCCL has made.
int gpu_of(const RealNccl& real, void* comm) noexcept {
  int gpu = -1;
  if (real.ncclCommCuDevice != nullptr) real.ncclCommCuDevice(comm, &gpu);
  return gpu;
}

/// Until polypath's last call is done, or the communicator is lost.
void wait_for_work(const Communicator& state) noexcept {
  while (state.comm != nullptr && !state.is_lost && !state.order.is_idle() &&
         state.engine->comm_check(state.comm) == POLYPATH_SUCCESS)
    gate::pause_us(50);
}

Communicator* take_out(void* comm) noexcept {
  Communicator* const gone = remove(comm);
  if (gone != nullptr) Group::current().forget(gone);
  return gone;
}

void lose(Communicator& state, const char* why) noexcept {
  if (state.comm != nullptr && !state.is_lost) state.engine->comm_abort(state.comm, why);
  state.is_lost = true;
}

}  // namespace

extern "C" {

int ncclCommInitRank(void** comm, int ranks, UniqueId id, int rank) {
  POLYPATH_NCCL_REAL(ncclCommInitRank);
  const auto make = [&] { return real->ncclCommInitRank(comm, ranks, id, rank); };
  if (ReentrancyGuard::is_inside()) return make();
  return create_first(key_of(&id, sizeof id), rank, ranks, is_blocking(nullptr, true), comm, make);
}

int ncclCommInitRankConfig(void** comm, int ranks, UniqueId id, int rank, Config* config) {
  POLYPATH_NCCL_REAL(ncclCommInitRankConfig);
  const auto make = [&] { return real->ncclCommInitRankConfig(comm, ranks, id, rank, config); };
  if (ReentrancyGuard::is_inside()) return make();
  return create_first(key_of(&id, sizeof id), rank, ranks, is_blocking(config, true), comm, make);
}

int ncclCommInitRankScalable(void** comm, int ranks, int rank, int count, UniqueId* ids,
                             Config* config) {
  POLYPATH_NCCL_REAL(ncclCommInitRankScalable);
  const auto make = [&] {
    return real->ncclCommInitRankScalable(comm, ranks, rank, count, ids, config);
  };
  if (ReentrancyGuard::is_inside() || ids == nullptr || count < 1) return make();
  return create_first(key_of(ids, sizeof *ids * static_cast<std::size_t>(count)), rank, ranks,
                      is_blocking(config, true), comm, make);
}

int ncclCommInitAll(void** comms, int count, const int* gpus) {
  POLYPATH_NCCL_REAL(ncclCommInitAll);
  const auto make = [&] { return real->ncclCommInitAll(comms, count, gpus); };
  if (ReentrancyGuard::is_inside() || comms == nullptr || count < 1) return make();
  struct {
    std::int64_t pid = getpid();
    timespec now{};
    std::uint64_t number = 0;
  } name;
  static std::atomic<std::uint64_t> numbers{0};
  name.number = ++numbers;
  clock_gettime(CLOCK_MONOTONIC, &name.now);
  const CommKey key = key_of(&name, sizeof name);
  std::vector<Creation> creations;
  for (int rank = 0; rank < count; ++rank) {
    load_kernels(gpus != nullptr ? gpus[rank] : rank, count);
    const int gpu = gpus != nullptr ? gpus[rank] : rank;
    creations.emplace_back(key, rank, count, is_blocking(nullptr, true), gpu);
    creations.back().expect(comms + rank);
  }
  return create(std::move(creations), make);
}

int ncclCommSplit(void* comm, int color, int key, void** part, Config* config) {
  POLYPATH_NCCL_REAL(ncclCommSplit);
  const auto make = [&] { return real->ncclCommSplit(comm, color, key, part, config); };
  const CommRef parent(comm);
  if (ReentrancyGuard::is_inside() || !parent) return make();
  const std::uint32_t number = ++parent->splits;
  if (color < 0) {
    const ReentrancyGuard inside;
    return make();
  }
  return create(part_key(*parent, {'s', number, color}), parent->rank, parent->size,
                is_blocking(config, parent->is_blocking), gpu_of(*real, comm), part, make);
}

int ncclCommShrink(void* comm, int* excluded, int count, void** part, Config* config, int flags) {
  POLYPATH_NCCL_REAL(ncclCommShrink);
  const auto make = [&] {
    return real->ncclCommShrink(comm, excluded, count, part, config, flags);
  };
  const CommRef parent(comm);
  if (ReentrancyGuard::is_inside() || !parent) return make();
  const std::uint32_t number = ++parent->shrinks;
  // Some of its ranks may be lost: NCCL aborts what is under way.
  constexpr int kAbort = 1;
  if ((flags & kAbort) != 0) lose(*parent, "ncclCommShrink");
  return create(part_key(*parent, {'k', number, 0}), parent->rank, parent->size,
                is_blocking(config, parent->is_blocking), gpu_of(*real, comm), part, make);
}

int ncclCommFinalize(void* comm) {
  POLYPATH_NCCL_REAL(ncclCommFinalize);
  if (ReentrancyGuard::is_inside()) return real->ncclCommFinalize(comm);
  if (const CommRef state(comm); state && state->is_blocking) wait_for_work(*state);
  const ReentrancyGuard inside;
  return real->ncclCommFinalize(comm);
}

int ncclCommDestroy(void* comm) {
  POLYPATH_NCCL_REAL(ncclCommDestroy);
  if (ReentrancyGuard::is_inside()) return real->ncclCommDestroy(comm);
  Communicator* const gone = take_out(comm);
  const ReentrancyGuard inside;
  const int result = real->ncclCommDestroy(comm);
  destroy_in_background(gone);
  return result;
}

int ncclCommAbort(void* comm) {
  POLYPATH_NCCL_REAL(ncclCommAbort);
  if (ReentrancyGuard::is_inside()) return real->ncclCommAbort(comm);
  Communicator* const gone = take_out(comm);
  if (gone != nullptr) lose(*gone, "ncclCommAbort");
  const ReentrancyGuard inside;
  const int result = real->ncclCommAbort(comm);
  if (gone != nullptr) wait_for_aborted_calls(*gone);
  destroy_in_background(gone);
  return result;
}

int ncclCommRevoke(void* comm, int flags) {
  POLYPATH_NCCL_REAL(ncclCommRevoke);
  if (ReentrancyGuard::is_inside()) return real->ncclCommRevoke(comm, flags);
  if (const CommRef state{comm}) lose(*state, "ncclCommRevoke");
  const ReentrancyGuard inside;
  return real->ncclCommRevoke(comm, flags);
}

int ncclCommGetAsyncError(void* comm, int* error) {
  POLYPATH_NCCL_REAL(ncclCommGetAsyncError);
  const int result = real->ncclCommGetAsyncError(comm, error);
  if (result != kSuccess || error == nullptr || *error != kSuccess) return result;
  const CommRef state(comm);
  // NCCL asks itself by this name too. An abort by this rank is no error of another one.
  const bool is_nccls_own =
      ReentrancyGuard::is_inside() || gate::object_of(__builtin_return_address(0)) == real->object;
  if (state && state->comm != nullptr && !state->is_lost && !is_nccls_own &&
      state->engine->comm_check(state->comm) == POLYPATH_COMMUNICATOR_ERROR)
    *error = kRemoteError;
  return result;
}

}  // extern "C"
