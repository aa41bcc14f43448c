#include "exec/emulated_mesh.hpp"

#include <algorithm>
#include <cstddef>
#include <set>

#include "base/log.hpp"
#include "driver/check.hpp"
#include "exec/context_guard.hpp"
#include "exec/kernels/copy_lane.h"
#include "topology/emulated_mesh.hpp"

namespace polypath {
namespace {

std::vector<int> linked_gpus(const Node& node) {
  std::set<int> gpus;
  for (const Link& link : node.links)
    if (is_emulated(link)) gpus.insert({link.from.index, link.to.index});
  return {gpus.begin(), gpus.end()};
}

}  // namespace

EmulatedMesh::EmulatedMesh(std::shared_ptr<const CudaDriver> driver, const Node& node,
                           Devices& devices)
    : driver_(std::move(driver)), devices_(devices), kernel_(driver_, devices, linked_gpus(node)) {
  try {
    for (const Link& link : node.links) {
      if (!is_emulated(link)) continue;
      // Whichever end copies reaches the other's memory, and the queues.
      devices_.enable_peer_access(link.from.index, link.to.index);
      devices_.enable_peer_access(link.to.index, link.from.index);
      paths_.push_back({link.from.index, link.to.index, link.gbps});
      make_queues(paths_.back());
    }
  } catch (...) {
    free_queues();
    throw;
  }
}

EmulatedMesh::~EmulatedMesh() { free_queues(); }

void EmulatedMesh::make_queues(Path& path) {
  constexpr std::size_t bytes = kMostLanes * sizeof(LaneQueue);
  ContextGuard guard(*driver_);
  guard.use(devices_.context(path.from));
  POLYPATH_CHECK(*driver_, mem_alloc(&path.queues, bytes));
  POLYPATH_CHECK(*driver_, memset_d8_async(path.queues, 0, bytes, CU_STREAM_PER_THREAD));
  POLYPATH_CHECK(*driver_, stream_synchronize(CU_STREAM_PER_THREAD));
}

void EmulatedMesh::free_queues() noexcept {
  for (const Path& path : paths_) {
    if (path.queues == 0) continue;
    try {
      ContextGuard guard(*driver_);
      guard.use(devices_.context(path.from));
      POLYPATH_WARN(*driver_, mem_free(path.queues));
    } catch (const Error& error) {
      log_warn("the lanes of a link were not freed: {}", error.what());
    }
  }
}

void EmulatedMesh::set_lanes(std::size_t index, int lanes, double gbps) {
  paths_.at(index).lanes = std::clamp(lanes, 1, kMostLanes);
  paths_.at(index).reached_gbps = gbps;
}

const EmulatedMesh::Path* EmulatedMesh::find(int from, int to) const noexcept {
  const auto path = std::ranges::find_if(
      paths_, [&](const Path& one) { return one.from == from && one.to == to; });
  return path == paths_.end() ? nullptr : &*path;
}

bool EmulatedMesh::reaches(int gpu, int memory) const noexcept {
  return gpu == memory || find(gpu, memory) != nullptr;
}

std::optional<LaneCopy> EmulatedMesh::lane_copy(CUdeviceptr dst, CUdeviceptr src,
                                                std::uint64_t bytes, const CopyPlace& place) const {
  if (!place.from.is_gpu() || !place.to.is_gpu()) return std::nullopt;
  const Path* path = find(place.from.index, place.to.index);
  if (path == nullptr || !reaches(place.gpu, path->from) || !reaches(place.gpu, path->to))
    return std::nullopt;
  return LaneCopy{.function = kernel_.function(place.gpu),
                  .blocks = static_cast<unsigned int>(path->lanes),
                  .threads = kLaneThreads,
                  .dst = dst,
                  .src = src,
                  .bytes = bytes,
                  .lanes = path->queues};
}

}  // namespace polypath
