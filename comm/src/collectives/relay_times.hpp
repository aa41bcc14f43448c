// Whether channels over idle GPUs take longer than those that go straight: how a rank finds that
// others, of any library, use the links of relays. All channels of a call carry as much, over links
// that are alike.
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

  /// `ns`: two words a channel, as CollectiveArgs has them.
  void take(std::span<const std::uint32_t> ns, const ChannelWays& ways, std::uint64_t now_ns);
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
  /// For kernels of `context`, of up to `channels` channels. Throws DriverError.
  RelayTimes(const CudaDriver& driver, CUcontext context, std::size_t channels);
  ~RelayTimes();
  RelayTimes(const RelayTimes&) = delete;
  RelayTimes& operator=(const RelayTimes&) = delete;

  /// Whether relays are slow; reads what the last noted call has left, if it has ended.
  bool is_slow(std::uint64_t now_ns);
  /// Where the next call notes its times; null: it does not.
  std::uint32_t* begin(std::uint64_t now_ns);
  /// A call that notes its times has been issued on `stream`, of the context.
  void issued(CUstream stream, const ChannelWays& ways, std::uint32_t channels);

 private:
  void look(std::uint64_t now_ns);

  const CudaDriver& driver_;
  CUcontext context_;
  std::uint32_t* ns_ = nullptr;  // pinned
  Event end_;
  bool is_under_way_ = false;
  std::uint64_t due_ns_ = 0;
  ChannelWays ways_{};
  std::uint32_t channels_ = 0;
  RelayVerdict verdict_;
};

}  // namespace polypath
