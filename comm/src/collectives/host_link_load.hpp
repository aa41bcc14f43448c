// The load of the links that Algorithm::mixed uses next to its kernel: those between the ranks'
// GPUs and host memory. A call takes them only when no rank has found its own loaded. The ranks
// agree on that without a wait (path_levels.hpp).
//
// A link is free or it is excluded, as for transfers (core/link_load.hpp): a copy engine serves
// processes in turns, so a small part of a message waits as long as a large one.
#pragma once

#include <cstdint>
#include <memory>

#include "collectives/monitored_issue.hpp"
#include "driver/cuda_driver.hpp"
#include "topology/node.hpp"

namespace polypath {

class LoadMonitor;

/// What one rank moves in such a call.
struct MixedTraffic {
  std::uint64_t kernel_bytes = 0;
  std::uint64_t host_bytes = 0;  ///< the part that goes through host memory
  int copies = 0;                ///< that the rank issues
  double predicted_us = 0;
  double without_us = 0;  ///< predicted for the call without host memory
};

/// What one rank knows of the links between its GPU and host memory. One thread at a time. Nothing
/// throws but std::bad_alloc.
class HostLinkLoad {
 public:
  virtual ~HostLinkLoad() = default;

  [[nodiscard]] virtual std::uint64_t now_ns() const = 0;
  /// Whether a call on `stream` would wait for others on the links.
  virtual bool is_loaded(const MixedTraffic& traffic, CUstream stream) = 0;

  /// A call that uses the links; the context of the stream is current. Null: there is nothing to
  /// note.
  virtual std::unique_ptr<MonitoredIssue> issue(const MixedTraffic& traffic, CUstream stream) = 0;
};

/// By the monitor of a context on `node`, for the rank on `gpu`. Both must outlive it. Null: the
/// monitor is off, or the GPU has no links to host memory.
std::unique_ptr<HostLinkLoad> watch_host_links(LoadMonitor& monitor, const Node& node, int gpu);

}  // namespace polypath
