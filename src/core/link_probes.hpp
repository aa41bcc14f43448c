// Probes: one small copy between the engine's own buffers over one link, timed by events. Nobody's
// bytes but its own move, and no stream of a transfer is touched.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "exec/devices.hpp"
#include "exec/route_resources.hpp"
#include "exec/staging_memory.hpp"

namespace polypath {

/// There is no memory to probe a link with.
class ProbeImpossible : public DriverError {
 public:
  using DriverError::DriverError;
};

/// Not thread-safe. One probe a link at a time.
class LinkProbes {
 public:
  static constexpr std::uint64_t kBytes = kMiB;

  /// All must outlive it.
  LinkProbes(std::shared_ptr<const CudaDriver> driver, const Node& node, Devices& devices,
             const RouteResources& resources)
      : driver_(std::move(driver)), node_(node), devices_(devices), resources_(resources) {}
  /// Waits for no probe: what one may still use is left to the end of the process.
  ~LinkProbes();
  LinkProbes(const LinkProbes&) = delete;
  LinkProbes& operator=(const LinkProbes&) = delete;

  /// Issues a probe. The first one of a link makes a stream, events and buffers: slow. Throws
  /// ProbeImpossible, DriverError.
  void begin(int link);
  /// How long the probe took; nothing: it has not ended. Throws DriverError: the probe is over.
  std::optional<double> poll(int link);

  /// What the cost model says of a probe on the idle link.
  static double model_us(const Node& node, int link);

 private:
  struct Probe {
    int gpu = 0;  ///< whose context issues it
    CUcontext context = nullptr;
    CUstream stream = nullptr;
    CUevent begin = nullptr;
    CUevent end = nullptr;
    bool is_under_way = false;
  };
  Probe& probe_of(int link);
  CUdeviceptr buffer_of(MemoryId memory, int gpu);
  CUdeviceptr make_buffer_of(MemoryId memory, int gpu);
  void destroy(Probe& probe) noexcept;

  std::shared_ptr<const CudaDriver> driver_;
  const Node& node_;
  Devices& devices_;
  const RouteResources& resources_;
  std::map<int, Probe> probes_;  // by link
  std::map<MemoryId, std::unique_ptr<StagingMemory>> buffers_;
  std::set<std::pair<MemoryId, int>> reached_;
};

}  // namespace polypath
