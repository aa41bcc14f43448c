#include "nccl/exchange.hpp"

#include <algorithm>
#include <cstring>
#include <ctime>
#include <mutex>
#include <new>
#include <vector>

namespace polypath::nccl {
namespace {

/// Of a rank, at once; all ranks' and this rank's once more.
constexpr std::size_t kPart = 4096;
constexpr std::size_t kMostRanks = 8;
constexpr std::size_t kBytes = kPart * (kMostRanks + 1);

/// Those that no exchange has.
struct Kept {
  std::mutex mutex;
  std::vector<ExchangeBuffers> all;
};
Kept& kept() noexcept {
  static Kept* const its = new Kept;  // the process may end beside an exchange
  return *its;
}

/// Some of this context; false: there are none.
bool take_kept(ExchangeBuffers& its) noexcept {
  Kept& free = kept();
  const std::lock_guard lock(free.mutex);
  const auto found = std::ranges::find_if(free.all, [&](const ExchangeBuffers& one) {
    return one.context == its.context && one.context_id == its.context_id;
  });
  if (its.context_id == 0 || found == free.all.end()) return false;
  its = *found;
  free.all.erase(found);
  return true;
}

bool keep(const ExchangeBuffers& its) noexcept {
  if (its.context_id == 0) return false;
  Kept& free = kept();
  const std::lock_guard lock(free.mutex);
  try {
    free.all.push_back(its);
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

void pause_briefly() noexcept {
  constexpr timespec kPause{0, 20'000};
  nanosleep(&kPause, nullptr);
}

}  // namespace

Exchange::Exchange(const Real& real, const Cuda& cuda, void* comm, int size,
                   CUcontext context) noexcept
    : real_(real),
      cuda_(cuda),
      comm_(comm),
      size_(static_cast<std::size_t>(size)),
      context_(context) {
  const InContext current(cuda_, context_);
  const RelaxedCapture relaxed(cuda_);
  its_.context = context_;
  if (cuda_.ctx_get_id == nullptr || cuda_.ctx_get_id(context_, &its_.context_id) != CUDA_SUCCESS)
    its_.context_id = 0;
  if (take_kept(its_)) return;
  void* pinned = nullptr;
  if (const int code = cuda_.stream_create(&its_.stream, CU_STREAM_NON_BLOCKING); code != 0) {
    its_.stream = nullptr;
    fail("cuStreamCreate", code);
  } else if (const int memory = cuda_.mem_alloc(&its_.memory, kBytes); memory != 0) {
    its_.memory = 0;
    fail("cuMemAlloc", memory);
  } else if (const int host = cuda_.mem_host_alloc(&pinned, kBytes, 0); host != 0) {
    fail("cuMemHostAlloc", host);
  } else {
    its_.pinned = static_cast<std::byte*>(pinned);
  }
}

Exchange::~Exchange() {
  const InContext current(cuda_, context_);
  const RelaxedCapture relaxed(cuda_);
  // What NCCL may still be at is not taken from it.
  const bool is_whole = its_.pinned != nullptr;
  if (!why_.empty() && is_whole) return;
  if (is_whole && keep(its_)) return;
  if (is_whole) cuda_.mem_free_host(its_.pinned);
  if (its_.memory != 0) cuda_.mem_free(its_.memory);
  if (its_.stream != nullptr) cuda_.stream_destroy(its_.stream);
}

bool Exchange::gather(const void* mine, void* all, std::size_t bytes) noexcept {
  if (!why_.empty()) return false;
  const InContext current(cuda_, context_);
  const RelaxedCapture relaxed(cuda_);
  for (std::size_t at = 0; at < bytes; at += kPart)
    if (!gather_part(static_cast<const std::byte*>(mine) + at, static_cast<std::byte*>(all) + at,
                     bytes, std::min(kPart, bytes - at)))
      return false;
  return true;
}

int Exchange::gather_for(const void* mine, void* all, std::size_t bytes, void* user) noexcept {
  return static_cast<Exchange*>(user)->gather(mine, all, bytes) ? 0 : 1;
}

bool Exchange::gather_part(const std::byte* mine, std::byte* all, std::size_t stride,
                           std::size_t bytes) noexcept {
  // This rank's part stands behind those of all.
  const std::size_t own = kPart * size_;
  const auto pinned = reinterpret_cast<CUdeviceptr>(its_.pinned);
  std::memcpy(its_.pinned + own, mine, bytes);
  if (const int code = cuda_.memcpy_async(its_.memory + own, pinned + own, bytes, its_.stream);
      code != 0)
    return fail("cuMemcpyAsync", code);
  if (const int code = real_.ncclAllGather(reinterpret_cast<const void*>(its_.memory + own),
                                           reinterpret_cast<void*>(its_.memory), bytes, kInt8,
                                           comm_, its_.stream);
      code != kSuccess && code != kInProgress)
    return fail("ncclAllGather", code);
  if (const int code = cuda_.memcpy_async(pinned, its_.memory, bytes * size_, its_.stream);
      code != 0)
    return fail("cuMemcpyAsync", code);
  if (!wait()) return false;
  for (std::size_t rank = 0; rank < size_; ++rank)
    std::memcpy(all + stride * rank, its_.pinned + bytes * rank, bytes);
  return true;
}

bool Exchange::wait() noexcept {
  for (;;) {
    const CUresult state = cuda_.stream_query(its_.stream);
    if (state == CUDA_SUCCESS) return true;
    if (state != CUDA_ERROR_NOT_READY) return fail("cuStreamQuery", state);
    int error = kSuccess;
    if (real_.ncclCommGetAsyncError != nullptr &&
        real_.ncclCommGetAsyncError(comm_, &error) == kSuccess && error != kSuccess &&
        error != kInProgress)
      return fail("NCCL, meanwhile", error);
    pause_briefly();
  }
}

bool Exchange::fail(const char* call, int code) noexcept {
  why_ = std::string(call) + ": error " + std::to_string(code);
  return false;
}

}  // namespace polypath::nccl
