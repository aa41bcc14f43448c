#include "tune/measure_host.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "base/units.hpp"
#include "driver/check.hpp"
#include "driver/resources.hpp"
#include "exec/copy_threads.hpp"
#include "exec/guarded_copy.hpp"
#include "exec/host_side.hpp"
#include "plan/pageable_plan.hpp"
#include "tune/test_buffer.hpp"

namespace polypath {
namespace {

/// More than caches hold.
constexpr std::uint64_t kMeasuredBytes = 128 * kMiB;
constexpr int kMeasurements = 5;
/// In place of a limit that is not seen.
constexpr double kUnlimitedGbps = 1e4;

double best_gbps(std::uint64_t bytes, const std::function<void()>& copy) {
  double best = 0;
  for (int i = 0; i < kMeasurements; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    copy();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    best = std::max(best, static_cast<double>(bytes) / took.count() / 1e9);
  }
  return best;
}

/// A file without a name, in the page cache, with the memory's contents; or none, where the system
/// gives no such file.
class CachedFile {
 public:
  CachedFile(const std::byte* memory, std::uint64_t bytes)
      : descriptor_(memfd_create("polypath", MFD_CLOEXEC)) {
    for (std::uint64_t at = 0; at < bytes;) {
      const ssize_t written = pwrite(descriptor_, memory + at, bytes - at, static_cast<off_t>(at));
      if (written <= 0) return;
      at += static_cast<std::uint64_t>(written);
    }
    is_whole_ = true;
  }
  ~CachedFile() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  CachedFile(const CachedFile&) = delete;
  CachedFile& operator=(const CachedFile&) = delete;

  explicit operator bool() const noexcept { return is_whole_; }
  [[nodiscard]] FilePart all() const noexcept { return {descriptor_, 0}; }

 private:
  int descriptor_;
  bool is_whole_ = false;
};

/// Each thread copies chunks between the memory, or from the file, and a slot of its own.
class HostCopies final : public SharedWork {
 public:
  /// `slots` of `slot_bytes` by thread, and one for the caller.
  HostCopies(ThreadWork what, std::byte* memory, const FilePart& file, std::span<std::byte> slots,
             std::uint64_t slot_bytes)
      : what_(what), memory_(memory), file_(file), slots_(slots), slot_bytes_(slot_bytes) {}

  bool step(int thread, int) noexcept override {
    const std::uint64_t offset = next_.fetch_add(slot_bytes_, std::memory_order_relaxed);
    if (offset >= kMeasuredBytes) return false;
    std::byte* const slot = &slots_[static_cast<std::uint64_t>(thread) * slot_bytes_];
    switch (what_) {
      case ThreadWork::to_gpu:
        copy_guarded(slot, memory_ + offset, slot_bytes_, Stores::cached);
        break;
      case ThreadWork::from_gpu:
        copy_guarded(memory_ + offset, slot, slot_bytes_, Stores::streaming);
        break;
      case ThreadWork::read:
        if (pread(file_.descriptor, slot, slot_bytes_, static_cast<off_t>(offset)) < 0)
          return false;
        break;
    }
    return true;
  }
  void begin() noexcept { next_ = 0; }

 private:
  ThreadWork what_;
  std::byte* memory_;
  FilePart file_;
  std::span<std::byte> slots_;
  std::uint64_t slot_bytes_;
  std::atomic<std::uint64_t> next_{0};
};

/// What the memory carries for its links with all GPUs, both directions.
double links_gbps(const Node& node, MemoryId host) {
  const std::string name = fmt::format("host.{}", to_string(host));
  const auto port = std::ranges::find(node.ports, name, &Port::name);
  return port == node.ports.end() || port->gbps <= 0 ? kUnlimitedGbps : port->gbps;
}

}  // namespace

HostRates fit_host_rates(double single, double all, int threads) noexcept {
  if (threads < 2 || single <= 0 || all <= 0) return {single, kUnlimitedGbps};
  // 1 / single = x + y, 1 / all = x / threads + y
  const double x = std::max(0.0, (1 / single - 1 / all) / (1 - 1.0 / threads));
  const double y = std::max(1 / single - x, 1 / kUnlimitedGbps);
  return {1 / std::max(x, 1 / kUnlimitedGbps), 1 / y};
}

Costs measure_host_copies(const CudaDriver& driver, const Node& node, int threads) {
  Costs costs = node.costs;
  const TestBuffer device(driver, node, MemoryId::gpu(0), kMeasuredBytes);
  const MemoryId near = MemoryId::host(node.gpus.front().numa);
  const TestBuffer host(driver, node, near, kMeasuredBytes, true);
  {
    const CurrentContext current(driver, device.context());
    costs.pageable_to_gpu_gbps = best_gbps(kMeasuredBytes, [&] {
      POLYPATH_CHECK(driver, memcpy_sync(device.address(), host.address(), kMeasuredBytes));
    });
    costs.pageable_from_gpu_gbps = best_gbps(kMeasuredBytes, [&] {
      POLYPATH_CHECK(driver, memcpy_sync(host.address(), device.address(), kMeasuredBytes));
    });
  }
  if (threads < 2) return costs;
  const std::uint64_t slot_bytes = pageable_slot_bytes(threads);
  std::vector<std::byte> slots(static_cast<std::size_t>(threads + 1) * slot_bytes);
  CopyThreads copiers(threads);
  const FaultGuard guard;
  auto* const memory = reinterpret_cast<std::byte*>(host.address());
  const CachedFile file(memory, kMeasuredBytes);
  for (const ThreadWork what : {ThreadWork::to_gpu, ThreadWork::from_gpu, ThreadWork::read}) {
    if (what == ThreadWork::read && !file) continue;
    HostCopies work(what, memory, file.all(), slots, slot_bytes);
    const auto gbps = [&](int seats) {
      return best_gbps(kMeasuredBytes, [&] {
        work.begin();
        copiers.run(work, seats);
      });
    };
    const double single = gbps(1);
    const double all = gbps(threads);
    if (what == ThreadWork::read) {
      // The memory's limit is the same: with all threads the plan reaches what was measured.
      const double own = (1 / all - 1 / costs.host_to_gpu_gbps) * threads;
      costs.thread_read_gbps = 1 / std::max(own, 1 / single);
      continue;
    }
    const HostRates rates = fit_host_rates(single, all, threads);
    (what == ThreadWork::to_gpu ? costs.thread_to_gpu_gbps : costs.thread_from_gpu_gbps) =
        rates.thread_gbps;
    // Here no link moves what the threads copy; in a transfer the memory does both.
    (what == ThreadWork::to_gpu ? costs.host_to_gpu_gbps : costs.host_from_gpu_gbps) =
        std::min(rates.host_gbps, links_gbps(node, near));
  }
  return costs;
}

}  // namespace polypath
