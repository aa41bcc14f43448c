#include "core/peer_processes.hpp"

#include <algorithm>
#include <cstring>
#include <tuple>

namespace polypath {
namespace {

/// No transfer is taken to last longer: what a prediction got wrong must not keep a link reserved.
constexpr double kLongestUs = 1e6;

IpcHandle bytes_of(const CUipcMemHandle& handle) {
  IpcHandle bytes;
  static_assert(sizeof bytes == sizeof handle);
  std::memcpy(bytes.data(), &handle, sizeof handle);
  return bytes;
}

GpuUuid uuid_of(const CudaDriver& driver, int gpu) {
  GpuUuid bytes{};
  CUuuid uuid{};
  static_assert(sizeof bytes == sizeof uuid);
  if (driver.device_get_uuid != nullptr && driver.device_get_uuid(&uuid, gpu) == CUDA_SUCCESS)
    std::memcpy(bytes.data(), &uuid, sizeof uuid);
  return bytes;
}

}  // namespace

void sort_pairs(std::vector<Request>& pairs) {
  std::ranges::sort(pairs, [](const Request& a, const Request& b) {
    return std::tie(a.src, a.dst) < std::tie(b.src, b.dst);
  });
  const auto same = std::ranges::unique(pairs);
  pairs.erase(same.begin(), same.end());
}

PeerProcesses::PeerProcesses(std::shared_ptr<Registry> registry, const CudaDriver& driver,
                             const Node& node)
    : registry_(std::move(registry)), node_(node) {
  for (int gpu = 0; gpu < static_cast<int>(node.gpus.size()); ++gpu)
    gpus_.push_back(uuid_of(driver, gpu));
}

PeerProcesses::~PeerProcesses() {
  for (const Own& own : own_) registry_->end(own.token);
}

std::optional<FlightEnd> PeerProcesses::end_of(MemoryId memory) const {
  const auto index = static_cast<std::size_t>(memory.index);
  if (memory.is_host()) return FlightEnd::of_host(node_.hosts[index].numa);
  if (gpus_[index] == GpuUuid{}) return std::nullopt;
  return FlightEnd::of_gpu(gpus_[index]);
}

std::optional<MemoryId> PeerProcesses::memory_of(const FlightEnd& end) const {
  switch (end.kind) {
    case FlightEnd::Kind::gpu: {
      const auto it = std::ranges::find(gpus_, end.gpu);
      if (end.gpu == GpuUuid{} || it == gpus_.end()) return std::nullopt;
      return MemoryId::gpu(static_cast<int>(it - gpus_.begin()));
    }
    case FlightEnd::Kind::host:
      for (std::size_t i = 0; i < node_.hosts.size(); ++i)
        if (node_.hosts[i].numa == end.numa) return MemoryId::host(static_cast<int>(i));
      return std::nullopt;
  }
  return std::nullopt;
}

void PeerProcesses::tell(const CUipcMemHandle& handle, const PointerInfo& memory) {
  const auto end = end_of(MemoryId::gpu(memory.gpu));
  if (end)
    registry_->publish({bytes_of(handle), end->gpu, memory.start, memory.bytes, memory.buffer});
}

int PeerProcesses::holder_of(const CUipcMemHandle& handle) {
  const auto record = registry_->find(bytes_of(handle));
  const auto memory = record ? memory_of(FlightEnd::of_gpu(record->gpu)) : std::nullopt;
  return memory ? memory->index : -1;
}

void PeerProcesses::add_loads(std::vector<GpuLoad>& out) const {
  for (const OtherLoad& load : seen_loads_)
    if (const auto memory = memory_of(FlightEnd::of_gpu(load.record.gpu)))
      out.push_back({memory->index, load.pid, load.record.to_host, load.record.from_host});
}

std::vector<GpuLoad> PeerProcesses::loads() {
  const std::lock_guard lock(mutex_);
  registry_->others(seen_, seen_loads_, true);
  std::vector<GpuLoad> loads;
  add_loads(loads);
  return loads;
}

void PeerProcesses::tell_loads(std::vector<LoadRecord> records) {
  for (std::size_t gpu = 0; gpu < records.size(); ++gpu) records[gpu].gpu = gpus_[gpu];
  std::erase_if(records, [](const LoadRecord& record) { return record.gpu == GpuUuid{}; });
  registry_->tell_loads(records);
}

void PeerProcesses::add_pairs_in_use(std::vector<Request>& out, std::vector<GpuLoad>* loads) {
  const std::lock_guard lock(mutex_);
  registry_->others(seen_, seen_loads_);
  if (loads != nullptr) add_loads(*loads);
  for (const InFlightTransfer& flight : seen_) {
    const auto src = memory_of(flight.source);
    const auto dst = memory_of(flight.destination);
    if (src && dst && *src != *dst) out.push_back({*src, *dst, 0});
  }
  sort_pairs(out);
}

void PeerProcesses::started(const Request& request, double predicted_us) {
  const auto source = end_of(request.src);
  const auto destination = end_of(request.dst);
  if (!source || !destination) return;
  const Request pair{request.src, request.dst, 0};
  const std::lock_guard lock(mutex_);
  auto own = std::ranges::find(own_, pair, &Own::pair);
  if (own == own_.end()) own = own_.insert(own_.end(), {pair, {}, 0});
  registry_->end(own->token);
  const std::uint64_t begin = std::max(own->end_ns, registry_->now_ns());
  const auto lasts = static_cast<std::uint64_t>(std::min(predicted_us, kLongestUs) * 1e3);
  own->end_ns = begin + lasts;
  own->token = registry_->start({*source, *destination, request.bytes, own->end_ns + lasts / 2});
}

}  // namespace polypath
