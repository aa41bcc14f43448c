#include "core/link_probes.hpp"

#include <algorithm>
#include <cstddef>

#include "base/units.hpp"
#include "driver/check.hpp"
#include "exec/context_guard.hpp"

namespace polypath {

double LinkProbes::model_us(const Node& node, int link) {
  return node.costs.copy_start_us +
         transfer_us(kBytes, node.links[static_cast<std::size_t>(link)].gbps);
}

LinkProbes::~LinkProbes() {
  const bool is_any_reset = devices_.any_reset();
  bool is_any_under_way = false;
  for (auto& [link, probe] : probes_) {
    if (probe.is_under_way && driver_->event_query(probe.end) == CUDA_SUCCESS)
      probe.is_under_way = false;
    is_any_under_way = is_any_under_way || probe.is_under_way;
    if (!is_any_reset) destroy(probe);
  }
  for (auto& [memory, buffer] : buffers_) {
    if (is_any_reset)
      buffer->abandon();
    else if (is_any_under_way)
      buffer->leave();
  }
}

void LinkProbes::destroy(Probe& probe) noexcept {
  for (CUevent* const event : {&probe.begin, &probe.end}) {
    if (*event != nullptr) POLYPATH_WARN(*driver_, event_destroy(*event));
    *event = nullptr;
  }
  if (probe.stream != nullptr) POLYPATH_WARN(*driver_, stream_destroy(probe.stream));
  probe.stream = nullptr;
}

CUdeviceptr LinkProbes::buffer_of(MemoryId memory, int gpu) {
  try {
    return make_buffer_of(memory, gpu);
  } catch (const DriverError& error) {
    throw ProbeImpossible(error.what(), error.code());
  }
}

CUdeviceptr LinkProbes::make_buffer_of(MemoryId memory, int gpu) {
  auto& buffer = buffers_[memory];
  if (buffer == nullptr) {
    const int holder = memory.is_gpu() ? memory.index : gpu;
    // Where the program has a context, so little is always taken.
    if (memory.is_gpu() && devices_.context_if_active(holder) == nullptr)
      devices_.require_staging(holder, kBytes);
    buffer = std::make_unique<StagingMemory>(driver_, node_, memory, kBytes, holder,
                                             devices_.context(holder));
  }
  if (!reached_.contains({memory, gpu})) {
    buffer->let_reach(gpu);
    reached_.insert({memory, gpu});
  }
  return buffer->address();
}

LinkProbes::Probe& LinkProbes::probe_of(int link) {
  Probe& probe = probes_[link];
  if (probe.stream != nullptr) return probe;
  probe.gpu = resources_.issuer(link);
  probe.context = devices_.context(probe.gpu);
  ContextGuard guard(*driver_);
  guard.use(probe.context);
  try {
    if (probe.begin == nullptr)
      POLYPATH_CHECK(*driver_, event_create(&probe.begin, CU_EVENT_DEFAULT));
    if (probe.end == nullptr) POLYPATH_CHECK(*driver_, event_create(&probe.end, CU_EVENT_DEFAULT));
    POLYPATH_CHECK(*driver_, stream_create(&probe.stream, CU_STREAM_NON_BLOCKING));
  } catch (...) {
    destroy(probe);
    throw;
  }
  return probe;
}

void LinkProbes::begin(int link) {
  const Link& over = node_.links[static_cast<std::size_t>(link)];
  const int gpu = resources_.issuer(link);
  const CUdeviceptr from = buffer_of(over.from, gpu);
  const CUdeviceptr to = buffer_of(over.to, gpu);
  Probe& probe = probe_of(link);
  if (!devices_.alive(probe.gpu))
    throw DriverError("the context of a probe was reset",
                      static_cast<int>(CUDA_ERROR_CONTEXT_IS_DESTROYED));
  ContextGuard guard(*driver_);
  guard.use(probe.context);
  POLYPATH_CHECK(*driver_, event_record(probe.begin, probe.stream));
  POLYPATH_CHECK(*driver_, memcpy_async(to, from, kBytes, probe.stream));
  probe.is_under_way = true;
  POLYPATH_CHECK(*driver_, event_record(probe.end, probe.stream));
}

std::optional<double> LinkProbes::poll(int link) {
  Probe& probe = probes_.at(link);
  const CUresult ended = driver_->event_query(probe.end);
  if (ended == CUDA_ERROR_NOT_READY) return std::nullopt;
  if (ended != CUDA_SUCCESS)
    throw_driver_error(*driver_, ended, "event_query(probe.end)", __FILE__, __LINE__);
  probe.is_under_way = false;
  float ms = 0;
  POLYPATH_CHECK(*driver_, event_elapsed_time(&ms, probe.begin, probe.end));
  return static_cast<double>(ms) * 1e3;
}

}  // namespace polypath
