#include "core/link_probes.hpp"

#include <algorithm>
#include <cstddef>

#include "base/units.hpp"
#include "driver/check.hpp"
#include "driver/context_guard.hpp"

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
  for (const auto& [gpu, stream] : clock_streams_)
    if (!is_any_reset) POLYPATH_WARN(*driver_, stream_destroy(stream));
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
                                             devices_.context(holder), devices_.pinned());
  }
  if (!reached_.contains({memory, gpu})) {
    buffer->enable_access(gpu);
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

CUstream LinkProbes::clock_stream_of(int gpu) {
  const auto known = clock_streams_.find(gpu);
  if (known != clock_streams_.end()) return known->second;
  CUstream stream = nullptr;
  POLYPATH_CHECK(*driver_, stream_create(&stream, CU_STREAM_NON_BLOCKING));
  return clock_streams_[gpu] = stream;
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
  POLYPATH_CHECK(*driver_, event_record(probe.begin, clock_stream_of(gpu)));
  probe.issued_ns = clock_();
  POLYPATH_CHECK(*driver_, memcpy_async(to, from, kBytes, probe.stream));
  probe.is_under_way = true;
  POLYPATH_CHECK(*driver_, event_record(probe.end, probe.stream));
  probe.running_ns = 0;
}

std::optional<double> LinkProbes::poll(int link) {
  Probe& probe = probes_.at(link);
  const std::uint64_t asked_ns = clock_();
  const CUresult ended = driver_->event_query(probe.end);
  if (ended == CUDA_ERROR_NOT_READY) {
    probe.running_ns = asked_ns;
    return std::nullopt;
  }
  if (ended != CUDA_SUCCESS)
    throw_driver_error(*driver_, ended, "event_query(probe.end)", __FILE__, __LINE__);
  probe.is_under_way = false;
  const auto since_issue_us = [&](std::uint64_t ns) {
    return ns > probe.issued_ns ? static_cast<double>(ns - probe.issued_ns) / 1e3 : 0;
  };
  float ms = 0;
  const CUresult timed = driver_->event_elapsed_time(&ms, probe.begin, probe.end);
  // Something held up the clock stream.
  if (timed == CUDA_ERROR_NOT_READY) return since_issue_us(clock_());
  if (timed != CUDA_SUCCESS)
    throw_driver_error(*driver_, timed, "event_elapsed_time(probe)", __FILE__, __LINE__);
  // The clock stream may be late; then the time is not less than what was seen from here.
  return std::max(static_cast<double>(ms) * 1e3, since_issue_us(probe.running_ns));
}

}  // namespace polypath
