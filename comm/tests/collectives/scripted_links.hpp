// Ranks that find load on their host links when a test says so, and calls that use such links on an
// idle node.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/units.hpp"
#include "call_rows.hpp"

namespace polypath::test {

/// Time passes by looks at the clock, so that each call of a rank looks at its links.
class ScriptedLinks final : public HostLinkLoad {
 public:
  /// `is_loaded`: at the n-th look, from 0.
  explicit ScriptedLinks(std::function<bool(int)> is_loaded) : is_loaded_(std::move(is_loaded)) {}

  [[nodiscard]] std::uint64_t now_ns() const override {
    return time_ns_ += LoadLooks::kQuietNs / 2;
  }
  bool is_loaded(const MixedTraffic& traffic, CUstream /*stream*/) override {
    EXPECT_GT(traffic.host_bytes, 0u);
    EXPECT_GT(traffic.without_us, 0.0);
    return is_loaded_(looks_++);
  }
  std::unique_ptr<MonitoredIssue> issue(const MixedTraffic& /*traffic*/,
                                        CUstream /*stream*/) override {
    return nullptr;
  }

 private:
  std::function<bool(int)> is_loaded_;
  int looks_ = 0;
  mutable std::uint64_t time_ns_ = 0;
};

/// When a rank finds load: each rank begins a few calls apart, and all find some from the 4th to
/// the 9th look on. Ranks that are at most kCallsApart calls apart are sure to change then.
inline std::function<bool(int)> load_from(int first) {
  return [first](int look) { return look >= first && (look - first) % 18 < 6; };
}
inline constexpr int kLatestFirst = 4;  ///< `first` is less
inline constexpr int kCallsApart = 4;

/// What ranks take the node for: links between GPUs look so slow that plans of more than 1 MiB are mixed.
inline void slow_down_gpu_links(Node& node) {
  for (Link& link : node.links)
    if (link.from.is_gpu() && link.to.is_gpu()) link.gbps = 1;
}

/// A random allreduce that is mixed on such a node.
inline PlannedCall mixed_call(Random& random, int ranks) {
  PlannedCall call;
  call.what.ranks = static_cast<std::uint32_t>(ranks);
  call.what.count = kMiB / sizeof(float) + random() % 16000;
  if (random() % 2 == 0) call.what.placement = Placement::in_place;
  call.images = images_of(random, call.what);
  return call;
}

/// A number of each rank.
inline std::vector<std::uint64_t> on_all_ranks(Communicator& comm, std::uint64_t number) {
  std::vector<std::uint64_t> all(static_cast<std::size_t>(comm.size()));
  comm.exchange(std::as_bytes(std::span(&number, 1)), std::as_writable_bytes(std::span(all)));
  return all;
}

}  // namespace polypath::test
