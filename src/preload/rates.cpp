#include "preload/rates.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <ctime>

#include "preload/statistics.hpp"

namespace polypath::preload {
namespace {

constexpr std::size_t kKept = 128;

struct Samples {
  std::atomic<std::uint64_t> count;
  std::atomic<float> gbps[kKept];
};

constinit Samples samples[kDirectionCount][2][kSizeClasses]{};

std::size_t class_of(std::size_t bytes) noexcept {
  const auto above = static_cast<std::size_t>(std::bit_width(bytes / kLeastRated));
  return std::min(above == 0 ? 0 : above - 1, kSizeClasses - 1);
}

std::uint64_t now_ns() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace

Rate rate_of(Direction direction, std::size_t size_class, bool is_issued) noexcept {
  const Samples& from = samples[index_of(direction)][is_issued ? 1 : 0][size_class];
  Rate rate{kLeastRated << size_class, is_issued, from.count.load(std::memory_order_relaxed), 0};
  const std::size_t kept = std::min<std::size_t>(rate.count, kKept);
  if (kept == 0) return rate;
  float values[kKept];
  for (std::size_t i = 0; i < kept; ++i) values[i] = from.gbps[i].load(std::memory_order_relaxed);
  std::nth_element(values, values + kept / 2, values + kept);
  rate.gbps = static_cast<double>(values[kept / 2]);
  return rate;
}

void add_rate(Direction direction, std::size_t bytes, bool is_issued,
              double microseconds) noexcept {
  if (microseconds <= 0) return;
  Samples& to = samples[index_of(direction)][is_issued ? 1 : 0][class_of(bytes)];
  const std::uint64_t index = to.count.fetch_add(1, std::memory_order_relaxed);
  const auto gbps = static_cast<float>(static_cast<double>(bytes) / microseconds / 1e3);
  to.gbps[index % kKept].store(gbps, std::memory_order_relaxed);
}

void forget_rates() noexcept {
  for (auto& by_issuer : samples)
    for (auto& by_size : by_issuer)
      for (Samples& one : by_size) one.count.store(0, std::memory_order_relaxed);
}

WaitSample::WaitSample(const Copy& copy) noexcept : copy_(copy) {
  if (are_statistics_wanted() && copy.bytes >= kLeastRated) begin_ns_ = now_ns();
}

void WaitSample::end(CUresult result, bool is_issued) noexcept {
  if (begin_ns_ == 0 || result != CUDA_SUCCESS) return;
  add_rate(copy_.direction, copy_.bytes, is_issued,
           static_cast<double>(now_ns() - begin_ns_) / 1e3);
}

}  // namespace polypath::preload
