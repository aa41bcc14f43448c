// What this process tells others on the machine, and learns from them, in terms of its own node:
// where memory lies, and between which memories bytes are under way (engine/src/registry).
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "core/pointer_info.hpp"
#include "plan/plan.hpp"
#include "registry/registry.hpp"

namespace polypath {

/// What another process tells of the links between a GPU of this node and host memory.
struct GpuLoad {
  int gpu = 0;
  int pid = 0;
  LoadWords to_host;
  LoadWords from_host;
};

/// Each pair once, in one order: plans are found again.
void sort_pairs(std::vector<Request>& pairs);

/// Thread-safe.
class PeerProcesses {
 public:
  /// `node` must outlive it. A GPU that the driver gives no UUID for is neither told nor found.
  PeerProcesses(std::shared_ptr<Registry> registry, const CudaDriver& driver, const Node& node);
  /// Nothing of this process is under way any more.
  ~PeerProcesses();
  PeerProcesses(const PeerProcesses&) = delete;
  PeerProcesses& operator=(const PeerProcesses&) = delete;

  /// Others may learn where `memory`, which `handle` stands for, lies.
  void tell(const CUipcMemHandle& handle, const PointerInfo& memory);
  /// The GPU that holds the memory of another process, or -1 when it was not published, or is not
  /// one of ours.
  int holder_of(const CUipcMemHandle& handle);

  /// Adds to `out` the pairs of memories that others are sending between, with 0 bytes: the rest of
  /// a message is not known. Each pair is there once then, in one order.
  /// `loads`: gets the published loads of links, as far as they count now; null: not requested.
  void add_pairs_in_use(std::vector<Request>& out, std::vector<GpuLoad>* loads = nullptr);
  /// All that they tell of links, also what is over.
  std::vector<GpuLoad> loads();
  /// Tells them how loaded links are; `records` has a place for each GPU, without its UUID.
  void tell_loads(std::vector<LoadRecord> records);
  /// Publishes a transfer that is being issued, with its predicted time. Peers count it as active
  /// for 1.5 times that time after the pair's earlier transfers. Its completion is not observed.
  void started(const Request& request, double predicted_us);

 private:
  struct Own {
    Request pair;
    FlightToken token;
    std::uint64_t end_ns = 0;
  };
  [[nodiscard]] std::optional<FlightEnd> end_of(MemoryId memory) const;
  [[nodiscard]] std::optional<MemoryId> memory_of(const FlightEnd& end) const;
  void add_loads(std::vector<GpuLoad>& out) const;  // of seen_loads_, with mutex_ held

  std::shared_ptr<Registry> registry_;
  const Node& node_;
  std::vector<GpuUuid> gpus_;  // all zero: unknown
  std::mutex mutex_;
  std::vector<InFlightTransfer> seen_;  // kept for its memory
  std::vector<OtherLoad> seen_loads_;   // kept for its memory
  std::vector<Own> own_;                // one a pair
};

}  // namespace polypath
