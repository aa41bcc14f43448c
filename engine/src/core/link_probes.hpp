// Probes: one small copy between the engine's own buffers over one link. Only bytes of the engine
// move, and no stream of a transfer is touched.
//
// A probe's time begins when it is issued. An event on its own stream cannot tell when that was:
// the copy engine executes it together with the copy, so that the wait for the engine is over by
// then (docs/cuda-notes.md). An event on another stream, which holds nothing else, can.
#pragma once

#include <cstdint>
#include <functional>
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

  /// All must outlive it. `clock`: nanoseconds.
  LinkProbes(std::shared_ptr<const CudaDriver> driver, const Node& node, Devices& devices,
             const RouteResources& resources, const std::function<std::uint64_t()>& clock)
      : driver_(std::move(driver)),
        node_(node),
        devices_(devices),
        resources_(resources),
        clock_(clock) {}
  /// Waits for no probe: what one may still use is left to the end of the process.
  ~LinkProbes();
  LinkProbes(const LinkProbes&) = delete;
  LinkProbes& operator=(const LinkProbes&) = delete;

  /// Issues a probe. The first one of a link makes a stream, events and buffers: slow. Throws
  /// ProbeImpossible, DriverError.
  void begin(int link);
  /// How long the probe took from its issue, in us; nothing: it has not ended. Throws DriverError:
  /// the probe is over.
  std::optional<double> poll(int link);

  /// What the cost model says of a probe on the idle link.
  static double model_us(const Node& node, int link);

 private:
  struct Probe {
    int gpu = 0;  ///< whose context issues it
    CUcontext context = nullptr;
    CUstream stream = nullptr;
    CUevent begin = nullptr;  ///< on the clock stream of the GPU
    CUevent end = nullptr;
    bool is_under_way = false;
    std::uint64_t issued_ns = 0;
    std::uint64_t running_ns = 0;  ///< when it was seen under way last
  };
  Probe& probe_of(int link);
  /// A stream of the GPU that holds nothing but beginnings of probes.
  CUstream clock_stream_of(int gpu);
  CUdeviceptr buffer_of(MemoryId memory, int gpu);
  CUdeviceptr make_buffer_of(MemoryId memory, int gpu);
  void destroy(Probe& probe) noexcept;

  std::shared_ptr<const CudaDriver> driver_;
  const Node& node_;
  Devices& devices_;
  const RouteResources& resources_;
  const std::function<std::uint64_t()>& clock_;
  std::map<int, Probe> probes_;            // by link
  std::map<int, CUstream> clock_streams_;  // by GPU
  std::map<MemoryId, std::unique_ptr<StagingMemory>> buffers_;
  std::set<std::pair<MemoryId, int>> reached_;
};

}  // namespace polypath
