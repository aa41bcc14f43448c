#include "collectives/path_levels.hpp"

#include <exception>

#include "collectives/relay_times.hpp"
#include "comm/deferred_memory.hpp"
#include "comm/relay_memory.hpp"

namespace polypath {

bool LoadLooks::is_loaded(std::uint64_t now_ns, const std::function<bool()>& finds_load) noexcept {
  // A clock that jumped back puts nothing off.
  if (now_ns >= next_ns_ || next_ns_ - now_ns > kLookEveryNs) {
    next_ns_ = now_ns + kLookEveryNs;
    try {
      if (finds_load()) loaded_until_ns_ = now_ns + kQuietNs;
    } catch (const std::exception&) {
      // As if it were free.
    }
  }
  return now_ns < loaded_until_ns_ && loaded_until_ns_ - now_ns <= kQuietNs;
}

PathLevels::PathLevels(CallLevels& levels, bool follows_host, HostLinkLoad* links,
                       const RelayParts& relays, const DeferredMemory* scratch)
    : levels_(levels),
      follows_host_(follows_host),
      links_(links),
      relays_(relays),
      scratch_(scratch) {
  levels_.propose(0);
}

OpenPaths PathLevels::paths_of(std::uint8_t level) const noexcept {
  return {!follows_host_ || (level & kHostLoaded) == 0,
          relays_.memory == nullptr || (level & kRelaysReady) != 0,
          scratch_ == nullptr || scratch_->may_use((level & kScratchReady) != 0)};
}

bool PathLevels::are_relays_loaded(const PathTraffic& traffic, CUstream stream) {
  RelayLoad& load = *relays_.load;
  const std::uint64_t now_ns = load.now_ns();
  if (relays_.times != nullptr && relays_.times->is_slow(now_ns)) return true;
  return relay_looks_.is_loaded(now_ns, [&] {
    return load.is_any_loaded({traffic.relayed_us, traffic.without_relays_us}, stream);
  });
}

OpenPaths PathLevels::begin_call(const PathTraffic& traffic, CUstream stream) {
  if (links_ != nullptr && traffic.host != nullptr)
    is_host_loaded_ = host_looks_.is_loaded(
        links_->now_ns(), [&] { return links_->is_loaded(*traffic.host, stream); });
  if (relays_.memory != nullptr && traffic.relayed_us > 0)
    are_relays_ready_ = relays_.memory->is_ready() && !are_relays_loaded(traffic, stream);
  const bool has_scratch = scratch_ != nullptr && scratch_->is_ready();
  levels_.propose(static_cast<std::uint8_t>((is_host_loaded_ ? kHostLoaded : 0) |
                                            (are_relays_ready_ ? kRelaysReady : 0) |
                                            (has_scratch ? kScratchReady : 0)));
  return paths_of(levels_.begin_call());
}

std::unique_ptr<MonitoredIssue> PathLevels::issue(const MixedTraffic& traffic,
                                                  CUstream stream) noexcept {
  try {
    return links_ == nullptr ? nullptr : links_->issue(traffic, stream);
  } catch (const std::exception&) {
    return nullptr;  // it is not noted
  }
}

}  // namespace polypath
