#include "nccl/host_all_gather.hpp"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "gate/process.hpp"

namespace polypath::nccl {

/// Before the bytes of each rank: what is of an earlier part, or of another communicator, is no
/// part of this one. A rank whose copy to the GPU failed gives just that.
struct HostAllGather::Header {
  CommKey key;
  std::uint64_t part = 0;

  [[nodiscard]] bool is(const CommKey& other, std::uint64_t number) const noexcept {
    return key.first == other.first && key.second == other.second && part == number;
  }
};

namespace {

/// The part of a rank, at once, with its header; all ranks' and this rank's once more.
constexpr std::size_t kPart = 4096;
constexpr std::size_t kBytes = kPart * (gate::kMaxRanks + 1);

std::string error_text(const char* call, int code) {
  return std::string(call) + ": error " + std::to_string(code);
}

}  // namespace

/// The buffers that no exchange has.
struct ExchangeBuffers::Kept {
  std::mutex mutex;
  std::vector<Buffers> all;
};
ExchangeBuffers::Kept& ExchangeBuffers::kept() noexcept {
  static Kept* const instance = new Kept;  // the process may end next to an exchange
  return *instance;
}

bool ExchangeBuffers::take_kept(Buffers& buffers) noexcept {
  Kept& free = kept();
  const std::lock_guard lock(free.mutex);
  const auto it = std::ranges::find_if(free.all, [&](const Buffers& entry) {
    return entry.context == buffers.context && entry.context_id == buffers.context_id;
  });
  if (buffers.context_id == 0 || it == free.all.end()) return false;
  buffers = *it;
  free.all.erase(it);
  return true;
}

bool ExchangeBuffers::keep(const Buffers& buffers) noexcept {
  if (buffers.context_id == 0) return false;
  Kept& free = kept();
  const std::lock_guard lock(free.mutex);
  try {
    free.all.push_back(buffers);
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

void ExchangeBuffers::fail(const char* call, int code) noexcept { why_ = error_text(call, code); }

ExchangeBuffers::ExchangeBuffers(int gpu) noexcept {
  const RelaxedCapture relaxed;
  CUdevice device = gpu;
  if (gpu < 0) {
    if (driver::ctx_get_device(&device) != CUDA_SUCCESS) return;
  } else if (const int code = driver::device_get(&device, gpu); code != 0) {
    fail("cuDeviceGet", code);
    return;
  }
  // Kept: NCCL has it as well, and it goes with the process.
  if (const int code = driver::primary_ctx_retain(&resources_.context, device); code != 0) {
    resources_.context = nullptr;
    fail("cuDevicePrimaryCtxRetain", code);
    return;
  }
  const InContext current(resources_.context);
  if (driver::ctx_get_id(resources_.context, &resources_.context_id) != CUDA_SUCCESS)
    resources_.context_id = 0;
  if (take_kept(resources_)) return;
  void* pinned = nullptr;
  if (const int code = driver::stream_create(&resources_.stream, CU_STREAM_NON_BLOCKING);
      code != 0) {
    resources_.stream = nullptr;
    fail("cuStreamCreate", code);
  } else if (const int memory = driver::mem_alloc(&resources_.memory, kBytes); memory != 0) {
    resources_.memory = 0;
    fail("cuMemAlloc", memory);
  } else if (const int host = driver::mem_host_alloc(&pinned, kBytes, 0); host != 0) {
    fail("cuMemHostAlloc", host);
  } else {
    resources_.pinned = static_cast<std::byte*>(pinned);
  }
}

ExchangeBuffers::~ExchangeBuffers() {
  if (resources_.context == nullptr) return;
  // What NCCL may still be at is not taken from it.
  const bool is_whole = resources_.pinned != nullptr;
  if (is_whole && (!why_.empty() || keep(resources_))) return;
  const InContext current(resources_.context);
  const RelaxedCapture relaxed;
  if (is_whole) driver::mem_free_host(resources_.pinned);
  if (resources_.memory != 0) driver::mem_free(resources_.memory);
  if (resources_.stream != nullptr) driver::stream_destroy(resources_.stream);
}

ExchangeBuffers& ExchangeBuffers::operator=(ExchangeBuffers&& other) noexcept {
  std::swap(resources_, other.resources_);
  std::swap(why_, other.why_);
  return *this;
}

HostAllGather::HostAllGather(const RealNccl& real, void* comm, int size, const CommKey& key,
                             ExchangeBuffers& buffers) noexcept
    : real_(real),
      comm_(comm),
      size_(static_cast<std::size_t>(size)),
      key_(key),
      buffers_(buffers) {}

bool HostAllGather::gather(const void* local, void* all, std::size_t bytes) noexcept {
  if (!why_.empty()) return false;
  const InContext current(buffers_.context());
  const RelaxedCapture relaxed;
  constexpr std::size_t kMaxPart = kPart - sizeof(Header);
  for (std::size_t at = 0; at < bytes; at += kMaxPart)
    if (!gather_part(static_cast<const std::byte*>(local) + at, static_cast<std::byte*>(all) + at,
                     bytes, std::min(kMaxPart, bytes - at)))
      return false;
  return true;
}

int HostAllGather::gather_for(const void* local, void* all, std::size_t bytes,
                              void* user) noexcept {
  return static_cast<HostAllGather*>(user)->gather(local, all, bytes) ? 0 : 1;
}

bool HostAllGather::gather_part(const std::byte* local, std::byte* all, std::size_t stride,
                                std::size_t bytes) noexcept {
  // This rank's part follows those of all.
  const std::size_t own = kPart * size_;
  const auto& buffers = buffers_.resources_;
  const auto pinned = reinterpret_cast<CUdeviceptr>(buffers.pinned);
  const Header header{key_, ++parts_};
  const std::size_t whole = sizeof header + bytes;
  std::memcpy(buffers.pinned + own, &header, sizeof header);
  std::memcpy(buffers.pinned + own + sizeof header, local, bytes);
  // Where it fails the others find no header of this part, and they and this rank all leave.
  static_cast<void>(
      driver::memcpy_async(buffers.memory + own, pinned + own, whole, buffers.stream));
  if (const int code = real_.ncclAllGather(reinterpret_cast<const void*>(buffers.memory + own),
                                           reinterpret_cast<void*>(buffers.memory), whole, kInt8,
                                           comm_, buffers.stream);
      code != kSuccess && code != kInProgress)
    return fail("ncclAllGather", code);
  if (const int code = driver::memcpy_async(pinned, buffers.memory, whole * size_, buffers.stream);
      code != 0)
    return fail("cuMemcpyAsync", code);
  if (!wait()) return false;
  for (std::size_t rank = 0; rank < size_; ++rank) {
    Header of_rank;
    std::memcpy(&of_rank, buffers.pinned + whole * rank, sizeof of_rank);
    if (!of_rank.is(key_, parts_)) {
      why_ = "rank " + std::to_string(rank) + " could not copy bytes to its GPU";
      failed_alike_ = true;
      return false;
    }
    std::memcpy(all + stride * rank, buffers.pinned + whole * rank + sizeof header, bytes);
  }
  return true;
}

bool HostAllGather::wait() noexcept {
  for (;;) {
    const CUresult state = driver::stream_query(buffers_.resources_.stream);
    if (state == CUDA_SUCCESS) return true;
    if (state != CUDA_ERROR_NOT_READY) return fail("cuStreamQuery", state);
    int error = kSuccess;
    if (real_.ncclCommGetAsyncError != nullptr &&
        real_.ncclCommGetAsyncError(comm_, &error) == kSuccess && error != kSuccess &&
        error != kInProgress)
      return fail("NCCL, meanwhile", error);
    gate::pause_us(20);
  }
}

bool HostAllGather::fail(const char* call, int code) noexcept {
  why_ = error_text(call, code);
  buffers_.why_ = why_;
  return false;
}

}  // namespace polypath::nccl
