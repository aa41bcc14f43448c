#include "tune/copy_group.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "base/error.hpp"
#include "base/units.hpp"
#include "tune/group_timer.hpp"
#include "tune/median.hpp"

namespace polypath {
namespace {

/// The smaller of the two sizes is this part of the larger.
constexpr std::uint64_t kSizeRatio = 4;
/// Sizes are multiples of it, as those of large buffers are.
constexpr std::uint64_t kGranule = 4 * kKiB;
/// A copy of the gate: it takes longer than the CPU needs to issue one.
constexpr std::uint64_t kGateBytes = kMiB;

std::uint64_t sum(const std::vector<std::uint64_t>& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0});
}

class CopyGroup {
 public:
  CopyGroup(Lanes& lanes, std::span<const int> links)
      : driver_(lanes.driver()),
        copies_(make_copies(lanes, links)),
        gate_(make_gate(lanes, copies_.front())),
        bytes_(lanes.copy_bytes(copies_.size())),
        timer_(driver_, streams()) {
    for (const Copy& copy : copies_) {
      starts_.emplace_back(driver_, copy.context);
      ends_.emplace_back(driver_, copy.context);
    }
  }

  /// Time of all together, copy i moving bytes[i].
  double run(const std::vector<std::uint64_t>& bytes) {
    const auto issue_copies = [&] {
      for (std::size_t i = 0; i < copies_.size(); ++i) {
        POLYPATH_CHECK(driver_, event_record(starts_[i].get(), copies_[i].stream));
        issue(copies_[i], bytes[i]);
        POLYPATH_CHECK(driver_, event_record(ends_[i].get(), copies_[i].stream));
      }
    };
    const auto issue_gate = [&] {
      for (std::size_t i = 0; i <= copies_.size(); ++i) issue(gate_, std::min(kGateBytes, bytes_));
    };
    return timer_.run(issue_copies, issue_gate);
  }

  /// Sizes with which all copies of a run finish at about the same time.
  std::vector<std::uint64_t> balanced_bytes() {
    const std::vector<std::uint64_t> equal(copies_.size(), bytes_);
    run(equal);  // warms up
    run(equal);
    std::vector<double> us;
    for (std::size_t i = 0; i < copies_.size(); ++i)
      us.push_back(elapsed_us(driver_, starts_[i], ends_[i]));
    const double fastest = std::ranges::min(us);
    std::vector<std::uint64_t> balanced;
    for (const double other : us) balanced.push_back(scaled(fastest / other));
    return balanced;
  }

 private:
  struct Copy {
    CUdeviceptr dst;
    CUdeviceptr src;
    int gpu;  ///< that issues it
    CUcontext context;
    CUstream stream;
  };

  static std::vector<Copy> make_copies(Lanes& lanes, std::span<const int> links) {
    std::map<MemoryId, std::size_t> buffers;
    std::map<int, std::size_t> streams;
    std::vector<Copy> copies;
    for (const int index : links) {
      const Link& link = lanes.node().links.at(static_cast<std::size_t>(index));
      const int gpu = link.from.is_gpu() ? link.from.index : link.to.index;
      const CUdeviceptr src = lanes.buffer(link.from, buffers[link.from]++);
      const CUdeviceptr dst = lanes.buffer(link.to, buffers[link.to]++);
      // Stream 0 is left to the gate.
      copies.push_back({dst, src, gpu, lanes.context(gpu), lanes.stream(gpu, ++streams[gpu])});
    }
    return copies;
  }

  /// The same copy on a stream of its own, so that no copy of the group has a head start.
  static Copy make_gate(Lanes& lanes, const Copy& first) {
    Copy gate = first;
    gate.stream = lanes.stream(first.gpu, 0);
    return gate;
  }

  [[nodiscard]] std::vector<CUstream> streams() const {
    std::vector<CUstream> all{gate_.stream};
    for (const Copy& copy : copies_) all.push_back(copy.stream);
    return all;
  }

  [[nodiscard]] std::uint64_t scaled(double part) const {
    const auto bytes = static_cast<std::uint64_t>(part * static_cast<double>(bytes_));
    return std::max(kGranule * kSizeRatio, bytes / (kGranule * kSizeRatio) * kGranule * kSizeRatio);
  }

  void issue(const Copy& copy, std::uint64_t bytes) {
    const CurrentContext current(driver_, copy.context);
    POLYPATH_CHECK(driver_, memcpy_async(copy.dst, copy.src, bytes, copy.stream));
  }

  const CudaDriver& driver_;
  std::vector<Copy> copies_;
  Copy gate_;
  std::uint64_t bytes_;
  GroupTimer timer_;
  std::vector<Event> starts_;
  std::vector<Event> ends_;
};

}  // namespace

double measure_together_gbps(Lanes& lanes, std::span<const int> links, int repetitions) {
  CopyGroup group(lanes, links);
  const std::vector<std::uint64_t> large = group.balanced_bytes();
  std::vector<std::uint64_t> small = large;
  for (std::uint64_t& bytes : small) bytes /= kSizeRatio;

  std::vector<double> small_us;
  std::vector<double> large_us;
  for (int i = 0; i < repetitions; ++i) {
    small_us.push_back(group.run(small));
    large_us.push_back(group.run(large));
  }
  const double gbps = rate_gbps(sum(large) - sum(small), median(large_us) - median(small_us));
  if (gbps > 0) return gbps;
  throw Error(
      fmt::format("measuring {} copies at once gave no rate: {} bytes took {} us, {} bytes {} us",
                  links.size(), sum(small), median(small_us), sum(large), median(large_us)));
}

}  // namespace polypath
