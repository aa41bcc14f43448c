#include "nccl/exchange.hpp"

#include <algorithm>
#include <cstring>
#include <ctime>
#include <vector>

namespace polypath::nccl {
namespace {

/// Of a rank, at once.
constexpr std::size_t kPart = 4096;

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
  if (const int code = cuda_.stream_create(&stream_, CU_STREAM_NON_BLOCKING); code != 0) {
    stream_ = nullptr;
    fail("cuStreamCreate", code);
  } else if (const int memory = cuda_.mem_alloc(&memory_, kPart * (size_ + 1)); memory != 0) {
    memory_ = 0;
    fail("cuMemAlloc", memory);
  }
}

Exchange::~Exchange() {
  const InContext current(cuda_, context_);
  const RelaxedCapture relaxed(cuda_);
  // What NCCL may still be at is not taken from it.
  if (!why_.empty() && memory_ != 0) return;
  if (memory_ != 0) cuda_.mem_free(memory_);
  if (stream_ != nullptr) cuda_.stream_destroy(stream_);
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
  const auto host = [](const void* address) { return reinterpret_cast<CUdeviceptr>(address); };
  const CUdeviceptr from = memory_ + kPart * size_;
  if (const int code = cuda_.memcpy_async(from, host(mine), bytes, stream_); code != 0)
    return fail("cuMemcpyAsync", code);
  if (const int code =
          real_.ncclAllGather(reinterpret_cast<const void*>(from), reinterpret_cast<void*>(memory_),
                              bytes, kInt8, comm_, stream_);
      code != kSuccess && code != kInProgress)
    return fail("ncclAllGather", code);
  std::vector<std::byte> gathered(bytes * size_);
  if (const int code = cuda_.memcpy_async(host(gathered.data()), memory_, gathered.size(), stream_);
      code != 0)
    return fail("cuMemcpyAsync", code);
  if (!wait()) return false;
  for (std::size_t rank = 0; rank < size_; ++rank)
    std::memcpy(all + stride * rank, gathered.data() + bytes * rank, bytes);
  return true;
}

bool Exchange::wait() noexcept {
  for (;;) {
    const CUresult state = cuda_.stream_query(stream_);
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
