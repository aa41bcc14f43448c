// Which paths the plans of calls may use next to the links between their GPUs: the links of host
// memory, unless a rank has found its own loaded, and idle GPUs, while those of all ranks are ready
// and not loaded. And whether calls use the scratch that ranks take later, once all have it. The
// ranks agree on all that without a wait (comm/call_levels.hpp).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "collectives/host_link_load.hpp"
#include "comm/call_levels.hpp"

namespace polypath {

class DeferredMemory;
class RelayLoad;
class RelayMemory;
class RelayTimes;

/// What of relays there is; null: nothing, on all ranks, but for `times`.
struct RelayParts {
  RelayLoad* load = nullptr;
  RelayMemory* memory = nullptr;
  RelayTimes* times = nullptr;
};

/// The same on all ranks.
struct OpenPaths {
  bool host_links = true;
  bool relays = true;
  bool scratch = true;  ///< all of it, not only what was taken at the beginning

  friend bool operator==(const OpenPaths&, const OpenPaths&) = default;
};

/// A load that is looked at now and then. One thread at a time.
class LoadLooks {
 public:
  /// The shortest time between two looks.
  static constexpr std::uint64_t kLookEveryNs = 1'000'000;
  /// What was loaded counts as free when no look has found load for this time. A call that waits
  /// for others loses more than paths gain in it.
  static constexpr std::uint64_t kQuietNs = 20'000'000;

  /// Whether it counts as loaded. What `finds_load` throws is taken for a free path.
  bool is_loaded(std::uint64_t now_ns, const std::function<bool()>& finds_load) noexcept;

 private:
  std::uint64_t next_ns_ = 0;
  std::uint64_t loaded_until_ns_ = 0;
};

/// A call that is counted: what its plans put on such paths.
struct PathTraffic {
  const MixedTraffic* host = nullptr;  ///< null: its plan of the present level uses no host links
  // With relays and without; 0: no plan of the call uses relays.
  double relayed_us = 0;
  double without_relays_us = 0;
};

/// One rank's. All ranks make the same calls in the same order. One thread at a time.
class PathLevels {
 public:
  /// `follows_host`: calls follow the load of host links, the same on all ranks. `links` null: this
  /// rank finds none. `scratch` null: all was taken at the beginning, on all ranks. All must
  /// outlive it.
  PathLevels(CallLevels& levels, bool follows_host, HostLinkLoad* links, const RelayParts& relays,
             const DeferredMemory* scratch);

  /// What the latest call might use: for calls that are not counted.
  [[nodiscard]] OpenPaths now() const noexcept { return paths_of(levels_.level()); }
  /// The next call that uses such paths on an idle node.
  OpenPaths begin_call(const PathTraffic& traffic, CUstream stream);
  /// As HostLinkLoad::issue().
  std::unique_ptr<MonitoredIssue> issue(const MixedTraffic& traffic, CUstream stream) noexcept;

  /// The next call that needs scratch which is not in use yet, and no such path.
  OpenPaths begin_call() { return begin_call({}, nullptr); }

  [[nodiscard]] bool follows_host() const noexcept { return follows_host_; }

 private:
  static constexpr std::uint8_t kHostLoaded = 0b1;        // of any rank
  static constexpr std::uint8_t kRelaysReady = 0b1000;    // of all ranks
  static constexpr std::uint8_t kScratchReady = 0b10000;  // of all ranks; never taken back
  static_assert((kHostLoaded & CallLevels::kOfAllRanks) == 0);
  static_assert((kRelaysReady & CallLevels::kOfAllRanks) != 0);
  static_assert((kScratchReady & CallLevels::kOfAllRanks) != 0);

  [[nodiscard]] OpenPaths paths_of(std::uint8_t level) const noexcept;
  [[nodiscard]] bool are_relays_loaded(const PathTraffic& traffic, CUstream stream);

  CallLevels& levels_;
  const bool follows_host_;
  HostLinkLoad* const links_;
  const RelayParts relays_;
  const DeferredMemory* const scratch_;
  LoadLooks host_looks_;
  LoadLooks relay_looks_;
  bool is_host_loaded_ = false;  // when it was looked at last
  bool are_relays_ready_ = false;
};

}  // namespace polypath
