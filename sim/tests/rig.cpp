#include "rig.hpp"

#include <algorithm>
#include <bit>

#include "base/units.hpp"

namespace polypath::sim::test {
namespace {

constexpr std::size_t kHostStaging = 64 * kMiB;  // of each GPU: what any transfer here takes

}  // namespace

Rig::Rig(std::size_t bytes) {
  CHECK_CUDA(cuInit(0));
  int count = 0;
  CHECK_CUDA(cuDeviceGetCount(&count));
  contexts_.resize(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i)
    CHECK_CUDA(cuDevicePrimaryCtxRetain(&contexts_[static_cast<std::size_t>(i)], i));
  for (int i = 0; i < count; ++i) {
    use(i);
    for (int j = 0; j < count; ++j) {
      int can = 0;
      CHECK_CUDA(cuDeviceCanAccessPeer(&can, i, j));
      if (can != 0) CHECK_CUDA(cuCtxEnablePeerAccess(contexts_[static_cast<std::size_t>(j)], 0));
    }
    CUdeviceptr buffer = 0;
    CHECK_CUDA(cuMemAlloc(&buffer, bytes));
    buffers_.push_back(buffer);
  }
  use(0);
  void* host = nullptr;
  CHECK_CUDA(cuMemHostAlloc(&host, bytes, CU_MEMHOSTALLOC_PORTABLE));
  host_ = std::bit_cast<CUdeviceptr>(host);
  // Pinning takes time, which is none of a transfer's.
  for (int number = 0; number < count; ++number) host_staging(number, kHostStaging);
}

CUstream Rig::stream(int gpu, int number) {
  CUstream& stream = streams_[{gpu, number}];
  if (stream == nullptr) {
    use(gpu);
    CHECK_CUDA(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  }
  return stream;
}

CUevent Rig::event(int gpu) {
  std::vector<CUevent>& events = events_[gpu];
  std::size_t& used = events_used_[gpu];
  if (used == events.size()) {
    use(gpu);
    CHECK_CUDA(cuEventCreate(&events.emplace_back(), CU_EVENT_DEFAULT));
  }
  return events[used++];
}

CUdeviceptr Rig::staging(int gpu, int number, std::size_t bytes) {
  auto& [address, size] = staging_[{gpu, number}];
  if (size < bytes) {
    use(gpu);
    CHECK_CUDA(cuMemAlloc(&address, bytes));
    size = bytes;
  }
  return address;
}

CUdeviceptr Rig::host_staging(int number, std::size_t bytes) {
  auto& [address, size] = staging_[{-1, number}];
  if (size < bytes) {
    use(0);
    void* host = nullptr;
    CHECK_CUDA(cuMemHostAlloc(&host, bytes, CU_MEMHOSTALLOC_PORTABLE));
    address = std::bit_cast<CUdeviceptr>(host);
    size = bytes;
  }
  return address;
}

double Rig::measure_us(const std::function<void()>& work) {
  CUstream main = stream(0, 0);
  events_used_.clear();
  forked_.clear();
  fork_ = event(0);
  const CUevent end = event(0);
  use(0);
  CHECK_CUDA(cuEventRecord(fork_, main));
  work();
  for (const auto& [gpu, forked] : forked_) {
    if (forked == main) continue;
    const CUevent join = event(gpu);
    CHECK_CUDA(cuEventRecord(join, forked));
    CHECK_CUDA(cuStreamWaitEvent(main, join, CU_EVENT_WAIT_DEFAULT));
  }
  CHECK_CUDA(cuEventRecord(end, main));
  CHECK_CUDA(cuEventSynchronize(end));
  float milliseconds = 0;
  CHECK_CUDA(cuEventElapsedTime(&milliseconds, fork_, end));
  return static_cast<double>(milliseconds) * 1e3;
}

CUstream Rig::forked(int gpu, int number) {
  const CUstream chosen = stream(gpu, number);
  const std::pair entry{gpu, chosen};
  if (std::find(forked_.begin(), forked_.end(), entry) == forked_.end()) {
    forked_.push_back(entry);
    if (chosen != stream(0, 0)) CHECK_CUDA(cuStreamWaitEvent(chosen, fork_, CU_EVENT_WAIT_DEFAULT));
  }
  return chosen;
}

}  // namespace polypath::sim::test
