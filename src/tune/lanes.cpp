#include "tune/lanes.hpp"

#include <algorithm>

#include "base/units.hpp"

namespace polypath {
namespace {

/// A group of n copies moves as much as this many large ones, if n is more.
constexpr std::uint64_t kLargeCopies = 4;
constexpr std::uint64_t kGranule = 64 * kKiB;

}  // namespace

Lanes::Lanes(const CudaDriver& driver, const Node& node, std::uint64_t bytes)
    : driver_(driver), node_(node), bytes_(std::max(bytes, kMiB)) {
  for (std::size_t gpu = 0; gpu < node.gpus.size(); ++gpu)
    contexts_.push_back(std::make_unique<PrimaryContext>(driver, static_cast<int>(gpu)));
  allow_peer_access();
}

void Lanes::allow_peer_access() {
  for (const Link& link : node_.links) {
    if (!link.from.is_gpu() || !link.to.is_gpu() || link.type == LinkType::bounce) continue;
    const CurrentContext current(driver_, context(link.from.index));
    const CUresult result = driver_.ctx_enable_peer_access(context(link.to.index), 0);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
      throw_driver_error(driver_, result, "ctx_enable_peer_access", __FILE__, __LINE__);
  }
}

CUcontext Lanes::context(int gpu) const {
  return contexts_.at(static_cast<std::size_t>(gpu))->get();
}

CUstream Lanes::stream(int gpu, std::size_t number) {
  std::vector<Stream>& streams = streams_[gpu];
  while (streams.size() <= number) streams.emplace_back(driver_, context(gpu));
  return streams[number].get();
}

CUdeviceptr Lanes::buffer(MemoryId memory, std::size_t number) {
  auto& buffers = buffers_[memory];
  while (buffers.size() <= number)
    buffers.push_back(
        std::make_unique<TestBuffer>(driver_, node_, memory, copy_bytes(buffers.size() + 1)));
  return buffers[number]->address();
}

std::uint64_t Lanes::copy_bytes(std::size_t copies) const noexcept {
  const std::uint64_t bytes = std::min(bytes_, kLargeCopies * bytes_ / copies);
  return std::max(kGranule, bytes / kGranule * kGranule);
}

}  // namespace polypath
