#include "collectives/relay_times.hpp"

#include <algorithm>
#include <utility>

#include "driver/check.hpp"
#include "driver/context_guard.hpp"
#include "exec/relaxed_capture.hpp"

namespace polypath {
namespace {

/// Between calls that note their times.
constexpr std::uint64_t kSampleEveryNs = 1'000'000;
/// Shorter ones say nothing.
constexpr std::uint32_t kMinChannelNs = 20'000;
/// By this much a relay's links take longer for their bytes where others use them. What such a
/// channel takes next to that, a second hop, is what a straight one has more to carry.
constexpr double kSlower = 1.3;
constexpr double kSecondHopNs = 20'000;

}  // namespace

void RelayVerdict::take(std::span<const std::uint32_t> ns, const ChannelWays& ways, double longer,
                        std::uint64_t now_ns) {
  std::uint32_t straight = 0;
  std::uint32_t relayed = 0;
  for (std::uint32_t channel = 0; 2 * channel + 1 < ns.size(); ++channel) {
    if (ns[2 * channel] == 0) continue;
    std::uint32_t& longest = ways.relay_of(channel) == ChannelWays::kStraight ? straight : relayed;
    longest = std::max(longest, ns[2 * channel + 1] - ns[2 * channel]);  // words of a clock
  }
  if (relayed < kMinChannelNs) return;
  if (relayed <= straight * (1 + (kSlower - 1) / longer) + kSecondHopNs) {
    suspect_ = false;
    hold_ns_ = kShortestNs;
    return;
  }
  // Once may be chance.
  if (!std::exchange(suspect_, true)) return;
  suspect_ = false;
  slow_until_ns_ = now_ns + hold_ns_;
  hold_ns_ = std::min(2 * hold_ns_, kLongestNs);
}

RelayTimes::RelayTimes(const CudaDriver& driver, CUcontext context)
    : driver_(driver), end_(driver, context, CU_EVENT_DISABLE_TIMING) {}

bool RelayTimes::is_slow(std::uint64_t now_ns) {
  look(now_ns);
  return verdict_.is_slow(now_ns);
}

bool RelayTimes::begin(std::uint64_t now_ns, std::span<std::uint32_t> ns) {
  look(now_ns);
  // A clock that jumped back puts nothing off.
  const bool is_due = now_ns >= due_ns_ || due_ns_ - now_ns > kSampleEveryNs;
  if (is_under_way_ || (!is_due && !verdict_.is_suspect())) return false;
  due_ns_ = now_ns + kSampleEveryNs;
  ns_ = ns;
  std::ranges::fill(ns_, 0U);
  return true;
}

void RelayTimes::issued(CUstream stream, const ChannelWays& ways,
                        const WayShares& shares) noexcept {
  ways_ = ways;
  longer_ = static_cast<double>(shares.straight) / shares.relayed;
  is_under_way_ = driver_.event_record(end_.get(), stream) == CUDA_SUCCESS;
}

void RelayTimes::look(std::uint64_t now_ns) {
  if (!is_under_way_) return;
  const RelaxedCapture relaxed(driver_);
  const CUresult result = driver_.event_query(end_.get());
  if (result == CUDA_ERROR_NOT_READY) return;
  is_under_way_ = false;
  if (result == CUDA_SUCCESS) verdict_.take(ns_, ways_, longer_, now_ns);
}

}  // namespace polypath
