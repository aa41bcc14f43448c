// The library that stands in for NCCL, with NCCL_STANDIN_KERNELS=1: a call of all ranks begins with
// a kernel that waits for those of the others, as NCCL's own kernels do. Driver calls that wait for
// kernels wait for it. Ranks are threads of this process, a GPU each.
#include <cuda.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>
#include <thread>
#include <utility>

#include "comm/kernels/stream_wait_args.h"
#include "nccl_standin_ranks.hpp"

namespace nccl_standin {
namespace {

using polypath::kMaxSignals;

/// A GPU's context, with the kernel in it.
struct Place {
  CUcontext context = nullptr;
  CUfunction kernel = nullptr;
  CUstream stream = nullptr;  ///< of its own
};

/// What the kernel of one rank waits with.
struct Rank {
  Place place;
  CUdeviceptr words = 0;  ///< one a rank, which that rank raises
  polypath::wait_context wait_ctx{};
  std::uint64_t calls = 0;
};

std::mutex of_kernels;
std::map<int, Place> places;                   // by GPU
std::map<std::pair<int, int>, Rank> by_ranks;  // communicator, rank

bool is_on() {
  static const bool is_set = std::getenv("NCCL_STANDIN_KERNELS") != nullptr;
  return is_set;
}

class Current {
 public:
  explicit Current(CUcontext context) {
    cuCtxGetCurrent(&before_);
    cuCtxSetCurrent(context);
  }
  ~Current() { cuCtxSetCurrent(before_); }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  CUcontext before_ = nullptr;
};

CUcontext context_of(int gpu) {
  CUdevice device = 0;
  CUcontext context = nullptr;
  return cuDeviceGet(&device, gpu) == CUDA_SUCCESS &&
                 cuDevicePrimaryCtxRetain(&context, device) == CUDA_SUCCESS
             ? context
             : nullptr;
}

/// With the context of the GPU current. As NCCL, it loads its kernels once.
Place make_place(int gpu) {
  Place place;
  place.context = context_of(gpu);
  const Current current(place.context);
  CUmodule module = nullptr;
  cuModuleLoadData(&module, "polypath: what stands in for NCCL");
  cuModuleGetFunction(&place.kernel, module, "polypath_stream_signals");
  cuStreamCreate(&place.stream, CU_STREAM_NON_BLOCKING);
  int gpus = 0;
  cuDeviceGetCount(&gpus);
  for (int other = 0; other < gpus; ++other)
    if (other != gpu) cuCtxEnablePeerAccess(context_of(other), 0);
  return place;
}

template <typename T>
T* pinned() {
  void* memory = nullptr;
  cuMemHostAlloc(&memory, sizeof(T), CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
  return new (memory) T{};
}

}  // namespace

void prepare_kernels(const Comm& comm) {
  if (!is_on()) return;
  const std::lock_guard lock(of_kernels);
  Place& place = places[comm.gpu];
  if (place.context == nullptr) place = make_place(comm.gpu);
  Rank& rank = by_ranks[{comm.id, comm.node}];
  const Current current(place.context);
  rank.place = place;
  constexpr std::size_t kBytes = (kMaxSignals + 1) * sizeof(std::uint64_t);
  cuMemAlloc(&rank.words, kBytes);
  cuMemsetD8Async(rank.words, 0, kBytes, place.stream);
  cuStreamSynchronize(place.stream);
  constexpr std::uint64_t kDay = std::uint64_t{24} * 60 * 60 * 1'000'000'000;
  rank.wait_ctx = {pinned<std::uint32_t>(), kDay, pinned<polypath::wait_error>(),
                   reinterpret_cast<std::uint32_t*>(rank.words + kMaxSignals * 8), 1};
}

void wait_for_all(const Comm& comm, CUstream stream) {
  if (!is_on()) return;
  // With two communicators at once, the kernels of one stand while the other one goes on.
  if (comm.node == 1) std::this_thread::sleep_for(std::chrono::milliseconds(10 * (comm.id % 3)));
  polypath::StreamSignalArgs args{};
  Place place;
  {
    const std::lock_guard lock(of_kernels);
    Rank& own = by_ranks[{comm.id, comm.node}];
    place = own.place;
    const auto word = [](CUdeviceptr words, int rank) {
      return reinterpret_cast<std::uint64_t*>(words) + rank;
    };
    ++own.calls;
    for (int other = 0; other < comm.nodes; ++other) {
      if (other == comm.node) continue;
      args.signals[args.signal_count++] = {word(by_ranks[{comm.id, other}].words, comm.node),
                                           own.calls};
      args.awaited[args.awaited_count++] = {word(own.words, other), own.calls};
    }
    args.base = word(own.words, 0);
    args.bytes = kMaxSignals * sizeof(std::uint64_t);
    args.wait_ctx = own.wait_ctx;
  }
  const Current current(place.context);
  void* parameters[] = {&args};
  cuLaunchKernel(place.kernel, 1, 1, 1, polypath::kStreamWaitThreads, 1, 1, 0, stream, parameters,
                 nullptr);
}

}  // namespace nccl_standin
