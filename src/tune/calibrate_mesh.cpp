#include "tune/calibrate_mesh.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/log.hpp"
#include "base/units.hpp"
#include "tune/lanes.hpp"
#include "tune/median.hpp"

namespace polypath {
namespace {

constexpr std::uint64_t kBytes = 64 * kMiB;
constexpr int kRepetitions = 3;
constexpr double kTolerance = 0.1;  ///< of the rate, before a warning

/// The copies over one link, as its source pushes them.
class LinkTimer {
 public:
  LinkTimer(EmulatedMesh& mesh, std::size_t path, Lanes& resources)
      : mesh_(mesh),
        path_(path),
        driver_(resources.driver()),
        from_(mesh.paths()[path].from),
        to_(mesh.paths()[path].to),
        context_(resources.context(from_)),
        stream_(resources.stream(from_, 0)),
        dst_(resources.buffer(MemoryId::gpu(to_), 1)),
        src_(resources.buffer(MemoryId::gpu(from_), 0)),
        start_(driver_, context_),
        end_(driver_, context_) {}

  /// GB/s with so many lanes; measured once.
  double gbps(int lanes) {
    if (const auto known = known_.find(lanes); known != known_.end()) return known->second;
    mesh_.set_lanes(path_, lanes, 0);
    run();  // warms up
    std::vector<double> us;
    for (int i = 0; i < kRepetitions; ++i) us.push_back(run());
    return known_[lanes] = rate_gbps(kBytes, median(us));
  }

 private:
  double run() {
    const CurrentContext current(driver_, context_);
    auto copy =
        mesh_.lane_copy(dst_, src_, kBytes, {MemoryId::gpu(from_), MemoryId::gpu(to_), from_});
    POLYPATH_CHECK(driver_, event_record(start_.get(), stream_));
    const CUresult launched = copy.value().launch(driver_, stream_);
    if (launched != CUDA_SUCCESS)
      throw_driver_error(driver_, launched, "the launch of the lane kernel", __FILE__, __LINE__);
    POLYPATH_CHECK(driver_, event_record(end_.get(), stream_));
    POLYPATH_CHECK(driver_, stream_synchronize(stream_));
    return elapsed_us(driver_, start_, end_);
  }

  EmulatedMesh& mesh_;
  std::size_t path_;
  const CudaDriver& driver_;
  int from_;
  int to_;
  CUcontext context_;
  CUstream stream_;
  CUdeviceptr dst_;
  CUdeviceptr src_;
  Event start_;
  Event end_;
  std::map<int, double> known_;  // by number of lanes
};

/// The number of lanes whose rate is nearest to `wanted`: the guess by the rate of one lane, then its
/// neighbour on the side of `wanted`, as long as that is nearer.
int nearest_lanes(LinkTimer& link, double wanted) {
  const auto off = [&](int lanes) { return std::abs(link.gbps(lanes) - wanted); };
  const auto allowed = [](long lanes) {
    return static_cast<int>(std::clamp(lanes, 1L, long{EmulatedMesh::kMostLanes}));
  };
  int best = allowed(std::lround(wanted / link.gbps(1)));
  for (;;) {
    const int next = allowed(link.gbps(best) < wanted ? best + 1 : best - 1);
    if (next == best || off(next) >= off(best)) return best;
    best = next;
  }
}

}  // namespace

void calibrate_mesh(EmulatedMesh& mesh, const CudaDriver& driver, const Node& node) {
  Lanes resources(driver, node, kBytes);
  for (std::size_t i = 0; i < mesh.paths().size(); ++i) {
    LinkTimer link(mesh, i, resources);
    const EmulatedMesh::Path path = mesh.paths()[i];
    const int lanes = nearest_lanes(link, path.gbps);
    const double gbps = link.gbps(lanes);
    mesh.set_lanes(i, lanes, gbps);
    log_info("emulated link gpu{} to gpu{}: {} lanes of {:.1f} GB/s each carry {:.1f} GB/s",
             path.from, path.to, lanes, link.gbps(1), gbps);
    if (std::abs(gbps - path.gbps) > kTolerance * path.gbps)
      log_warn(
          "the emulated link gpu{} to gpu{} carries {:.1f} GB/s instead of {:g}: one lane carries "
          "{:.1f}, so ask for a multiple of it",
          path.from, path.to, gbps, path.gbps, link.gbps(1));
  }
}

}  // namespace polypath
