#include "tune/copy_groups.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/units.hpp"
#include "tune/group_timer.hpp"
#include "tune/median.hpp"

namespace polypath {
namespace {

/// The smaller of the two sizes is this part of the larger.
constexpr std::uint64_t kSizeRatio = 4;
/// Copies of a group start on a multiple of it, as large buffers do.
constexpr std::uint64_t kGranule = 4 * kKiB;
/// A group of n copies moves as much as this many large copies, if n is more.
constexpr std::uint64_t kLargeCopies = 4;

std::uint64_t part_of(std::uint64_t bytes, double part) {
  const auto scaled = static_cast<std::uint64_t>(part * static_cast<double>(bytes));
  return std::max(kGranule, scaled / kGranule * kGranule);
}

int issuing_gpu(const Link& link) { return link.from.is_gpu() ? link.from.index : link.to.index; }

}  // namespace

CopyGroups::CopyGroups(const CudaDriver& driver, const Node& node, std::uint64_t bytes)
    : driver_(driver), node_(node), bytes_(std::max(bytes, kMiB)) {
  for (std::size_t gpu = 0; gpu < node.gpus.size(); ++gpu)
    contexts_.push_back(std::make_unique<PrimaryContext>(driver, static_cast<int>(gpu)));
  allow_peer_access();
}

void CopyGroups::allow_peer_access() {
  for (const Link& link : node_.links) {
    if (!link.from.is_gpu() || !link.to.is_gpu() || link.type == LinkType::bounce) continue;
    const CurrentContext current(driver_, context(link.from.index));
    const CUresult result = driver_.ctx_enable_peer_access(context(link.to.index), 0);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
      throw_driver_error(driver_, result, "ctx_enable_peer_access", __FILE__, __LINE__);
  }
}

CUcontext CopyGroups::context(int gpu) const {
  return contexts_.at(static_cast<std::size_t>(gpu))->get();
}

const Stream& CopyGroups::stream(int gpu, std::size_t number) {
  std::vector<Stream>& streams = streams_[gpu];
  while (streams.size() <= number) streams.emplace_back(driver_, context(gpu));
  return streams[number];
}

const TestBuffer& CopyGroups::buffer(MemoryId memory, std::size_t number) {
  auto& buffers = buffers_[memory];
  // Buffer `n` serves only groups that have more than n copies.
  while (buffers.size() <= number)
    buffers.push_back(
        std::make_unique<TestBuffer>(driver_, node_, memory, copy_bytes(buffers.size() + 1)));
  return *buffers[number];
}

std::uint64_t CopyGroups::copy_bytes(std::size_t copies) const noexcept {
  const std::uint64_t bytes = std::min(bytes_, kLargeCopies * bytes_ / copies);
  return std::max(kSizeRatio * kGranule, bytes / kGranule * kGranule);
}

std::vector<CopyGroups::Copy> CopyGroups::make_copies(std::span<const int> links) {
  std::map<MemoryId, std::size_t> buffers_used;
  std::map<int, std::size_t> streams_used;
  std::vector<Copy> copies;
  for (const int index : links) {
    const Link& link = node_.links.at(static_cast<std::size_t>(index));
    const int gpu = issuing_gpu(link);
    const CUdeviceptr src = buffer(link.from, buffers_used[link.from]++).address();
    const CUdeviceptr dst = buffer(link.to, buffers_used[link.to]++).address();
    copies.push_back({dst, src, context(gpu), stream(gpu, streams_used[gpu]++).get()});
  }
  return copies;
}

void CopyGroups::issue(const Copy& copy, std::uint64_t bytes) {
  const CurrentContext current(driver_, copy.context);
  POLYPATH_CHECK(driver_, memcpy_async(copy.dst, copy.src, bytes, copy.stream));
}

std::vector<double> CopyGroups::balanced_parts(GroupTimer& timer, const std::vector<Copy>& copies,
                                               std::uint64_t bytes) {
  std::vector<Event> starts;
  std::vector<Event> ends;
  for (const Copy& copy : copies) {
    starts.emplace_back(driver_, copy.stream);
    ends.emplace_back(driver_, copy.stream);
  }
  timer.run([&] {
    for (std::size_t i = 0; i < copies.size(); ++i) {
      POLYPATH_CHECK(driver_, event_record(starts[i].get(), copies[i].stream));
      issue(copies[i], bytes);
      POLYPATH_CHECK(driver_, event_record(ends[i].get(), copies[i].stream));
    }
  });
  std::vector<double> rates;
  for (std::size_t i = 0; i < copies.size(); ++i)
    rates.push_back(rate_gbps(bytes, elapsed_us(driver_, starts[i], ends[i])));
  const double fastest = std::ranges::max(rates);
  for (double& rate : rates) rate = fastest > 0 ? rate / fastest : 1.0;
  return rates;
}

GroupRate CopyGroups::measure(std::span<const int> links, int repetitions) {
  const std::vector<Copy> copies = make_copies(links);
  std::vector<CUstream> streams;
  for (const Copy& copy : copies) streams.push_back(copy.stream);
  GroupTimer timer(driver_, streams);

  const std::uint64_t large = copy_bytes(copies.size());
  const std::vector<double> parts = balanced_parts(timer, copies, large);
  const auto time_us = [&](std::uint64_t bytes) {
    return timer.run([&] {
      for (std::size_t i = 0; i < copies.size(); ++i) issue(copies[i], part_of(bytes, parts[i]));
    });
  };
  const auto total = [&](std::uint64_t bytes) {
    std::uint64_t sum = 0;
    for (const double part : parts) sum += part_of(bytes, part);
    return sum;
  };

  std::vector<double> small_us;
  std::vector<double> large_us;
  for (int i = 0; i < repetitions; ++i) {
    small_us.push_back(time_us(large / kSizeRatio));
    large_us.push_back(time_us(large));
  }
  const std::uint64_t small_total = total(large / kSizeRatio);
  GroupRate rate;
  rate.gbps = rate_gbps(total(large) - small_total, median(large_us) - median(small_us));
  if (!(rate.gbps > 0))
    throw Error(
        fmt::format("measuring {} copies at once gave no rate: {} bytes took {} us, {} bytes "
                    "{} us",
                    copies.size(), small_total, median(small_us), total(large), median(large_us)));
  rate.start_us = median(small_us) - transfer_us(small_total, rate.gbps);
  return rate;
}

}  // namespace polypath
