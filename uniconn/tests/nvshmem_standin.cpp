// What stands in for NVSHMEM in tests without GPUs: the functions of its host library that UNICONN
// uses, for ranks that are threads of this process, over the simulated driver. As there, memory is
// addressed by the local address and a rank, and everything happens on the stream.
#include <cuda.h>

#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "polypath/uniconn/reduction.hpp"

namespace {

namespace detail = polypath::uniconn::detail;
using polypath::uniconn::Element;
using polypath::uniconn::ReductionOperator;

struct Piece {
  std::vector<CUdeviceptr> addresses;  // by rank
  std::size_t bytes = 0;
};

/// Ranks of one id.
struct World {
  std::mutex mutex;
  std::condition_variable changed;
  int ranks = 0;
  int come = 0;
  std::uint64_t meetings = 0;
  std::vector<CUcontext> contexts;
  std::vector<CUdeviceptr> offers;
  std::vector<Piece> pieces;

  /// All ranks; `last` is called by the last of them.
  template <typename Last>
  void meet(const Last& last) {
    std::unique_lock lock(mutex);
    const std::uint64_t meeting = meetings;
    if (++come == ranks) {
      come = 0;
      ++meetings;
      last();
      changed.notify_all();
    }
    changed.wait(lock, [&] { return meetings > meeting; });
  }
};

std::mutex mutex;
std::map<int, std::shared_ptr<World>> worlds;
int ids = 0;

struct Rank {
  std::shared_ptr<World> world;
  int rank = 0;
  std::uint64_t* words = nullptr;  // of barriers
  std::uint64_t barriers = 0;
};
thread_local Rank self;

CUdeviceptr address(const void* own) { return reinterpret_cast<CUdeviceptr>(own); }

/// Where that is on another rank; 0: nowhere.
CUdeviceptr on_rank(const void* own, int rank) {
  const std::lock_guard lock(self.world->mutex);
  for (const Piece& piece : self.world->pieces) {
    const CUdeviceptr begin = piece.addresses[static_cast<std::size_t>(self.rank)];
    if (begin != 0 && address(own) - begin < piece.bytes)
      return piece.addresses[static_cast<std::size_t>(rank)] + (address(own) - begin);
  }
  return 0;
}

void barrier(CUstream stream) {
  ++self.barriers;
  for (int to = 0; to < self.world->ranks; ++to)
    cuStreamWriteValue64(stream, on_rank(self.words + self.rank, to), self.barriers, 0);
  for (int from = 0; from < self.world->ranks; ++from)
    cuStreamWaitValue64(stream, address(self.words + from), self.barriers,
                        CU_STREAM_WAIT_VALUE_GEQ);
}

struct Combining {
  detail::CombineFunction combine;
  std::byte* parts;
  int ranks;
  std::size_t count;
};

int reduce(Element element, detail::CombineFunction combine, void* to, const void* from,
           std::size_t count, CUstream stream) {
  const std::size_t bytes = count * polypath::uniconn::bytes_of(element);
  const int ranks = self.world->ranks;
  void* pinned = nullptr;  // to the end of the program
  if (cuMemHostAlloc(&pinned, bytes * static_cast<std::size_t>(ranks), 0) != CUDA_SUCCESS) return 1;
  auto* const parts = static_cast<std::byte*>(pinned);
  barrier(stream);
  for (int rank = 0; rank < ranks; ++rank) {
    const CUdeviceptr there = on_rank(from, rank);
    if (there == 0) return 1;
    cuMemcpyAsync(address(parts + static_cast<std::size_t>(rank) * bytes), there, bytes, stream);
  }
  barrier(stream);
  cuLaunchHostFunc(
      stream,
      [](void* data) {
        const std::unique_ptr<Combining> combining(static_cast<Combining*>(data));
        combining->combine(combining->parts, combining->ranks, combining->count, combining->parts);
      },
      new Combining{combine, parts, ranks, count});
  cuMemcpyAsync(address(to), address(parts), bytes, stream);
  return 0;
}

}  // namespace

extern "C" {

void* nvshmem_malloc(std::size_t bytes);

/// That ranks are threads.
void nvshmem_standin() {}

int nvshmemx_get_uniqueid(int* id) {
  const std::lock_guard lock(mutex);
  id[1] = ++ids;
  return 0;
}
int nvshmemx_set_attr_uniqueid_args(int rank, int ranks, const int* id, char* attributes) {
  constexpr std::size_t kIdAt = 16 + 16;  // after version, mpi_comm, two versions
  const auto* const id_address = id;
  std::memcpy(attributes + kIdAt, &id_address, sizeof id_address);
  std::memcpy(attributes + kIdAt + 8, &rank, sizeof rank);
  std::memcpy(attributes + kIdAt + 12, &ranks, sizeof ranks);
  return 0;
}
int nvshmemx_hostlib_init_attr(unsigned flags, const char* attributes) {
  const int* id = nullptr;
  int ranks = 0;
  std::memcpy(&id, attributes + 32, sizeof id);
  std::memcpy(&self.rank, attributes + 40, sizeof self.rank);
  std::memcpy(&ranks, attributes + 44, sizeof ranks);
  if (flags != 8 || id == nullptr || ranks < 1) return 7;
  {
    const std::lock_guard lock(mutex);
    auto& world = worlds[id[1]];
    if (world == nullptr) {
      world = std::make_shared<World>();
      world->ranks = ranks;
      world->contexts.resize(static_cast<std::size_t>(ranks));
      world->offers.resize(static_cast<std::size_t>(ranks));
    }
    self.world = world;
  }
  CUcontext own = nullptr;
  if (cuCtxGetCurrent(&own) != CUDA_SUCCESS || own == nullptr) return 7;
  self.world->contexts[static_cast<std::size_t>(self.rank)] = own;
  self.world->meet([] {});
  for (const CUcontext other : self.world->contexts)
    if (other != own) cuCtxEnablePeerAccess(other, 0);
  self.barriers = 0;
  self.words = static_cast<std::uint64_t*>(nvshmem_malloc(64 * sizeof(std::uint64_t)));
  cuMemsetD8Async(address(self.words), 0, 64 * sizeof(std::uint64_t), nullptr);
  cuStreamSynchronize(nullptr);
  self.world->meet([] {});
  return 0;
}

void* nvshmem_malloc(std::size_t bytes) {
  CUdeviceptr memory = 0;
  if (cuMemAlloc(&memory, bytes) != CUDA_SUCCESS) return nullptr;
  World& world = *self.world;
  world.offers[static_cast<std::size_t>(self.rank)] = memory;
  world.meet([&] { world.pieces.push_back({world.offers, bytes}); });
  return reinterpret_cast<void*>(memory);
}
void nvshmem_free(void* memory) {
  World& world = *self.world;
  world.meet([] {});
  {
    const std::lock_guard lock(world.mutex);
    for (Piece& piece : world.pieces) {
      auto& own = piece.addresses[static_cast<std::size_t>(self.rank)];
      if (own == address(memory)) own = 0;
    }
  }
  cuMemFree(address(memory));
}
void nvshmemx_hostlib_finalize() {
  nvshmem_free(self.words);
  self.world.reset();
}

void nvshmemx_putmem_on_stream(void* to, const void* from, std::size_t bytes, int rank,
                               CUstream stream) {
  cuMemcpyAsync(on_rank(to, rank), address(from), bytes, stream);
}
void nvshmemx_signal_op_on_stream(std::uint64_t* word, std::uint64_t value, int op, int rank,
                                  CUstream stream) {
  if (op == 9) cuStreamWriteValue64(stream, on_rank(word, rank), value, 0);
}
void nvshmemx_putmem_signal_on_stream(void* to, const void* from, std::size_t bytes,
                                      std::uint64_t* word, std::uint64_t value, int op, int rank,
                                      CUstream stream) {
  nvshmemx_putmem_on_stream(to, from, bytes, rank, stream);
  nvshmemx_signal_op_on_stream(word, value, op, rank, stream);
}
void nvshmemx_signal_wait_until_on_stream(std::uint64_t* word, int compare, std::uint64_t value,
                                          CUstream stream) {
  if (compare == 5) cuStreamWaitValue64(stream, address(word), value, CU_STREAM_WAIT_VALUE_GEQ);
}
void nvshmemx_quiet_on_stream(CUstream) {}
void nvshmemx_barrier_all_on_stream(CUstream stream) { barrier(stream); }

int nvshmemx_fcollectmem_on_stream(int, void* to, const void* from, std::size_t bytes,
                                   CUstream stream) {
  barrier(stream);
  auto* const place = static_cast<char*>(to) + bytes * static_cast<std::size_t>(self.rank);
  for (int rank = 0; rank < self.world->ranks; ++rank)
    nvshmemx_putmem_on_stream(place, from, bytes, rank, stream);
  barrier(stream);
  return 0;
}
int nvshmemx_alltoallmem_on_stream(int, void* to, const void* from, std::size_t bytes,
                                   CUstream stream) {
  barrier(stream);
  auto* const place = static_cast<char*>(to) + bytes * static_cast<std::size_t>(self.rank);
  for (int rank = 0; rank < self.world->ranks; ++rank)
    nvshmemx_putmem_on_stream(
        place, static_cast<const char*>(from) + bytes * static_cast<std::size_t>(rank), bytes, rank,
        stream);
  barrier(stream);
  return 0;
}

#define REDUCTION(type, element, name, op)                                                     \
  int nvshmemx_##type##_##name##_reduce_on_stream(int, void* to, const void* from,             \
                                                  std::size_t count, CUstream stream) {        \
    return reduce(Element::element,                                                            \
                  detail::combine_function<ReductionOperator::op>(Element::element), to, from, \
                  count, stream);                                                              \
  }
#define REDUCTIONS(type, element)      \
  REDUCTION(type, element, sum, SUM)   \
  REDUCTION(type, element, prod, PROD) \
  REDUCTION(type, element, min, MIN)   \
  REDUCTION(type, element, max, MAX)
#define REDUCTIONS_OF_BITS(type)   \
  REDUCTIONS(type, type)           \
  REDUCTION(type, type, and, BAND) \
  REDUCTION(type, type, or, BOR)   \
  REDUCTION(type, type, xor, BXOR)
REDUCTIONS_OF_BITS(int8)
REDUCTIONS_OF_BITS(uint8)
REDUCTIONS_OF_BITS(int16)
REDUCTIONS_OF_BITS(uint16)
REDUCTIONS_OF_BITS(int32)
REDUCTIONS_OF_BITS(uint32)
REDUCTIONS_OF_BITS(int64)
REDUCTIONS_OF_BITS(uint64)
REDUCTIONS(half, float16)
REDUCTIONS(bfloat16, bfloat16)
REDUCTIONS(float, float32)
REDUCTIONS(double, float64)

}  // extern "C"
