#include "tune/measuring_set.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "base/error.hpp"
#include "base/units.hpp"
#include "tune/group_timer.hpp"

namespace polypath {
namespace {

/// A group of n copies moves as much as this many large ones, if n is more.
constexpr std::uint64_t kLargeCopies = 4;
/// Sizes of buffers are multiples of it.
constexpr std::uint64_t kBufferGranule = 64 * kKiB;

/// The smaller of the two sizes is this part of the larger.
constexpr std::uint64_t kSizeRatio = 4;
/// Sizes of copies are multiples of it, as those of large buffers are.
constexpr std::uint64_t kGranule = 4 * kKiB;
/// A copy of the gate: it takes longer than the CPU needs to issue one.
constexpr std::uint64_t kGateBytes = kMiB;

std::uint64_t sum(const std::vector<std::uint64_t>& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0});
}

class CopyGroup {
 public:
  CopyGroup(MeasurementContext& set, std::span<const int> links)
      : driver_(set.driver()),
        copies_(make_copies(set, links)),
        gate_(make_gate(set, copies_.front())),
        bytes_(set.copy_bytes(copies_.size())),
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

  static std::vector<Copy> make_copies(MeasurementContext& set, std::span<const int> links) {
    std::map<MemoryId, std::size_t> buffers;
    std::map<int, std::size_t> streams;
    std::vector<Copy> copies;
    for (const int index : links) {
      const Link& link = set.node().links.at(static_cast<std::size_t>(index));
      const int gpu = link.from.is_gpu() ? link.from.index : link.to.index;
      const CUdeviceptr src = set.buffer(link.from, buffers[link.from]++);
      const CUdeviceptr dst = set.buffer(link.to, buffers[link.to]++);
      // Stream 0 is left to the gate.
      copies.push_back({dst, src, gpu, set.context(gpu), set.stream(gpu, ++streams[gpu])});
    }
    return copies;
  }

  /// The same copy on a stream of its own, so that no copy of the group has a head start.
  static Copy make_gate(MeasurementContext& set, const Copy& first) {
    Copy gate = first;
    gate.stream = set.stream(first.gpu, 0);
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

MeasurementContext::MeasurementContext(const CudaDriver& driver, const Node& node,
                                       std::uint64_t bytes)
    : driver_(driver), node_(node), bytes_(std::max(bytes, kMiB)) {
  for (std::size_t gpu = 0; gpu < node.gpus.size(); ++gpu)
    contexts_.push_back(std::make_unique<PrimaryContext>(driver, static_cast<int>(gpu)));
  allow_peer_access();
}

void MeasurementContext::allow_peer_access() {
  for (const Link& link : node_.links) {
    if (!link.from.is_gpu() || !link.to.is_gpu() || link.type == LinkType::bounce) continue;
    const CurrentContext current(driver_, context(link.from.index));
    const CUresult result = driver_.ctx_enable_peer_access(context(link.to.index), 0);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
      throw_driver_error(driver_, result, "ctx_enable_peer_access", __FILE__, __LINE__);
  }
}

CUcontext MeasurementContext::context(int gpu) const {
  return contexts_.at(static_cast<std::size_t>(gpu))->get();
}

CUstream MeasurementContext::stream(int gpu, std::size_t number) {
  std::vector<Stream>& streams = streams_[gpu];
  while (streams.size() <= number) streams.emplace_back(driver_, context(gpu));
  return streams[number].get();
}

CUdeviceptr MeasurementContext::buffer(MemoryId memory, std::size_t number) {
  auto& buffers = buffers_[memory];
  while (buffers.size() <= number)
    buffers.push_back(
        std::make_unique<TestBuffer>(driver_, node_, memory, copy_bytes(buffers.size() + 1)));
  return buffers[number]->address();
}

std::uint64_t MeasurementContext::copy_bytes(std::size_t copies) const noexcept {
  const std::uint64_t bytes = std::min(bytes_, kLargeCopies * bytes_ / copies);
  return std::max(kBufferGranule, bytes / kBufferGranule * kBufferGranule);
}

double measure_together_gbps(MeasurementContext& set, std::span<const int> links, int repetitions) {
  CopyGroup group(set, links);
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
