// Whether channels over idle GPUs take longer than those that go straight: how a rank finds that
// others, of any library, use the links of relays. On a free node all channels of a call end
// together, over links that are alike.
//
// Now and then a call notes when each channel had its first tile and its last
// (CollectiveArgs::channel_ns). Both are after all ranks have begun, so a rank that comes late
// changes nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "collectives/channel_ways.h"
#include "driver/resources.hpp"

namespace polypath {

/// What times of channels say, and for how long it holds. One thread at a time.
class RelayVerdict {
 public:
  /// The shortest time for which slow relays are left out; twice as long each time, up to the
  /// longest. A call over slow relays costs more than free ones gain in many.
  static constexpr std::uint64_t kShortestNs = 20'000'000;
  static constexpr std::uint64_t kLongestNs = 1'280'000'000;

  /// `ns`: two words a channel, as CollectiveArgs has them; a channel without tiles notes no first
  /// one, which is 0.
  /// `longer`: a straight share, for one over a relay.
  void take(std::span<const std::uint32_t> ns, const ChannelWays& ways, double longer,
            std::uint64_t now_ns);
  [[nodiscard]] bool is_slow(std::uint64_t now_ns) const noexcept {
    return now_ns < slow_until_ns_;
  }
  /// Whether the last call looked slow, so that the next one is worth a look.
  [[nodiscard]] bool is_suspect() const noexcept { return suspect_; }

 private:
  bool suspect_ = false;
  std::uint64_t hold_ns_ = kShortestNs;
  std::uint64_t slow_until_ns_ = 0;
};

/// One rank's. One thread at a time.
class RelayTimes {
 public:
  /// For kernels of `context`. Throws DriverError.
  RelayTimes(const CudaDriver& driver, CUcontext context);

  /// Whether relays are slow; reads what the last noted call has left, if it has ended.
  bool is_slow(std::uint64_t now_ns);
  /// Whether the next call notes its times in `ns`, pinned memory of two words a channel.
  bool begin(std::uint64_t now_ns, std::span<std::uint32_t> ns);
  /// It has been issued on `stream`, of the context.
  void issued(CUstream stream, const ChannelWays& ways, const WayShares& shares) noexcept;

 private:
  void look(std::uint64_t now_ns);

  const CudaDriver& driver_;
  std::span<std::uint32_t> ns_;  // of the call that notes its times
  Event end_;
  bool is_under_way_ = false;
  std::uint64_t due_ns_ = 0;
  ChannelWays ways_{};
  double longer_ = 1;
  RelayVerdict verdict_;
};

}  // namespace polypath
