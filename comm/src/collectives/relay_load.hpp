// What a rank knows of the load of GPUs that are no ranks, and of the links to and from them.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/monitored_issue.hpp"
#include "comm/communicator.hpp"

namespace polypath {

class Devices;
class LoadMonitor;

/// What relays stand on. Both must outlive the collectives.
struct RelaySource {
  Devices* devices = nullptr;   ///< null: there are no relays
  LoadMonitor* load = nullptr;  ///< null: no load is known
};

/// One rank's. One thread at a time.
class RelayLoad {
 public:
  /// `load` null: no load is known. `gpus`: as this process numbers them, in the order of plans.
  /// `key`: of no other communicator; its copies are no load for each other. All must outlive it.
  RelayLoad(LoadMonitor* load, const Communicator& communicator, std::vector<int> gpus,
            std::uintptr_t key);

  /// Whether loads are known.
  [[nodiscard]] bool is_known() const noexcept;
  /// The clock of loads; 0 where none is known.
  [[nodiscard]] std::uint64_t now_ns() const;

  /// A call, with relays and without, us; 0: unknown.
  struct Times {
    double predicted_us = 0;
    double without_us = 0;
  };
  /// Whether others than this communicator load any relay. Throws std::bad_alloc.
  [[nodiscard]] bool is_any_loaded(const Times& times, CUstream stream);

  /// What this rank sends in a call.
  struct Traffic {
    struct Part {
      int relay = 0;  ///< its index
      int rank = 0;   ///< to which it sends
      std::uint64_t bytes = 0;
    };
    std::vector<Part> parts;  ///< over relays
    std::uint64_t direct_bytes = 0;
    Times times;
  };
  /// Notes a call whose kernel is about to be launched.
  void note(const Traffic& traffic) noexcept;

 private:
  [[nodiscard]] MonitoredTraffic on_links(const Traffic& traffic) const;

  LoadMonitor* const load_;
  const Communicator& comm_;
  const std::vector<int> gpus_;
  const std::uintptr_t key_;
};

}  // namespace polypath
