// How many lanes give a link of an emulated mesh its rate.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "base/log.hpp"
#include "base/units.hpp"
#include "driver/check.hpp"
#include "driver/context_guard.hpp"
#include "exec/emulated_mesh/emulated_links.hpp"

namespace polypath {
namespace {

constexpr std::uint64_t kBytes = 64 * kMiB;
constexpr double kTolerance = 0.1;  ///< of the rate, before a warning

}  // namespace

/// The copies over one link, as its source pushes them.
class EmulatedLinks::Timer {
 public:
  Timer(EmulatedLinks& links, std::size_t index)
      : links_(links), index_(index), driver_(*links.driver_), guard_(driver_) {
    try {
      allocate(links.links_[index].to, &dst_);
      allocate(links.links_[index].from, &src_);
      POLYPATH_CHECK(driver_, stream_create(&stream_, CU_STREAM_NON_BLOCKING));
      for (CUevent& event : events_)
        POLYPATH_CHECK(driver_, event_create(&event, CU_EVENT_DEFAULT));
    } catch (...) {
      free_all();
      throw;
    }
  }
  ~Timer() { free_all(); }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  /// GB/s with `lanes` lanes, the median of three; measured once.
  double gbps(int lanes) {
    if (const auto known = known_.find(lanes); known != known_.end()) return known->second;
    links_.set_lanes(index_, lanes, 0);
    run_us();  // warms up
    std::array<double, 3> us{run_us(), run_us(), run_us()};
    std::ranges::sort(us);
    return known_[lanes] = rate_gbps(kBytes, us[1]);
  }

 private:
  /// Leaves the GPU's context current.
  void allocate(int gpu, CUdeviceptr* address) {
    guard_.use(links_.on(gpu).context);
    POLYPATH_CHECK(driver_, mem_alloc(address, kBytes));
  }

  double run_us() {
    const EmulatedLink& link = links_.links_[index_];
    auto copy = links_.link_copy(dst_, src_, kBytes, link.from, link.to, link.from).value();
    POLYPATH_CHECK(driver_, event_record(events_[0], stream_));
    const CUresult launched = copy.launch(driver_, stream_);
    if (launched != CUDA_SUCCESS)
      throw_driver_error(driver_, launched, "the launch of the lane kernel", __FILE__, __LINE__);
    POLYPATH_CHECK(driver_, event_record(events_[1], stream_));
    POLYPATH_CHECK(driver_, stream_synchronize(stream_));
    float ms = 0;
    POLYPATH_CHECK(driver_, event_elapsed_time(&ms, events_[0], events_[1]));
    return double{ms} * 1000;
  }

  void free_all() noexcept {
    for (const CUevent event : events_)
      if (event != nullptr) POLYPATH_WARN(driver_, event_destroy(event));
    if (stream_ != nullptr) POLYPATH_WARN(driver_, stream_destroy(stream_));
    for (const CUdeviceptr address : {dst_, src_})
      if (address != 0) POLYPATH_WARN(driver_, mem_free(address));
  }

  EmulatedLinks& links_;
  std::size_t index_;
  const CudaDriver& driver_;
  ContextGuard guard_;
  CUdeviceptr dst_ = 0;
  CUdeviceptr src_ = 0;
  CUstream stream_ = nullptr;
  std::array<CUevent, 2> events_{};
  std::map<int, double> known_;  // by number of lanes
};

void EmulatedLinks::calibrate() {
  for (std::size_t i = 0; i < links_.size(); ++i) {
    const EmulatedLink link = links_[i];
    Timer timer(*this, i);
    const auto off = [&](int lanes) { return std::abs(timer.gbps(lanes) - link.gbps); };
    const auto allowed = [](long lanes) {
      return static_cast<int>(std::clamp(lanes, 1L, long{kMaxLanes}));
    };
    // The guess by the rate of one lane, then its neighbour on the side of what is wanted, as long
    // as that is nearer.
    int lanes = allowed(std::lround(link.gbps / timer.gbps(1)));
    for (;;) {
      const int next = allowed(timer.gbps(lanes) < link.gbps ? lanes + 1 : lanes - 1);
      if (next == lanes || off(next) >= off(lanes)) break;
      lanes = next;
    }
    const double gbps = timer.gbps(lanes);
    set_lanes(i, lanes, gbps);
    log_info("emulated link gpu{} to gpu{}: {} lanes of {:.1f} GB/s each carry {:.1f} GB/s",
             link.from, link.to, lanes, timer.gbps(1), gbps);
    if (std::abs(gbps - link.gbps) > kTolerance * link.gbps)
      log_warn(
          "the emulated link gpu{} to gpu{} carries {:.1f} GB/s instead of {:g}: one lane carries "
          "{:.1f}, so ask for a multiple of it",
          link.from, link.to, gbps, link.gbps, timer.gbps(1));
  }
}

}  // namespace polypath
