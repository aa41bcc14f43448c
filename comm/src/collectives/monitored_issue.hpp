// A collective's call as the monitor of loads sees it: a transfer by two routes. What goes between
// the ranks without help stands for the direct route; the links that the call uses next to it are
// the staged one. So the call's copies are noted while they are issued. Now and then it is timed
// how much later than the direct route the staged one ends.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "driver/cuda_driver.hpp"
#include "topology/node.hpp"

namespace polypath {

class LoadMonitor;

/// One call of one rank, from before it is issued. One thread; its context is current.
class MonitoredIssue {
 public:
  virtual ~MonitoredIssue() = default;

  /// What stands for the direct route is on the call's stream, or joined by it.
  virtual void direct_issued() noexcept = 0;
  /// All of the call is on its stream, which has joined the copies.
  virtual void all_issued() noexcept = 0;
};

/// What a rank puts on links.
struct MonitoredTraffic {
  MemoryId from;    ///< the rank's GPU
  MemoryId staged;  ///< where the staged route goes through; of several, one
  struct OnLink {
    int link = 0;
    std::uint64_t bytes = 0;
  };
  std::vector<OnLink> links;  ///< of the staged route
  std::uint64_t direct_bytes = 0;
  std::uint64_t staged_bytes = 0;
  int copies = 0;  ///< over each of these links, that the rank issues
  double predicted_us = 0;
  double without_us = 0;  ///< predicted for the call by the direct route alone
};

/// Notes the call, and begins to time it where that is due. `key`: copies with this one are no load
/// for each other, as of one stream. `monitor` must outlive it. Throws std::bad_alloc.
std::unique_ptr<MonitoredIssue> begin_monitored(LoadMonitor& monitor,
                                                const MonitoredTraffic& traffic, std::uintptr_t key,
                                                CUstream stream);
/// Notes a call that is issued now, and does not time it. As above.
void note_monitored(LoadMonitor& monitor, const MonitoredTraffic& traffic, std::uintptr_t key);

}  // namespace polypath
