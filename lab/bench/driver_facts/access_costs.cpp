#include <utility>
#include <vector>

#include "base/units.hpp"
#include "sections.hpp"

namespace polypath::facts {
namespace {

constexpr const char* kAccessCosts = "access_costs";
constexpr int kTimes = 5;  ///< that each size is mapped and unmapped
/// As much as one allocation of a large model's weights.
constexpr std::uint64_t kMapped = kGiB;

/// Memory of GPU 0 in mappings of `part` bytes without access.
class Mappings {
 public:
  Mappings(const CudaDriver& driver, std::uint64_t part) : driver_(driver) {
    bytes_ = kMapped / part * part;
    CUmemAllocationProp what{};
    what.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    what.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    POLYPATH_CHECK(driver_, mem_address_reserve(&address_, bytes_, 0, 0, 0));
    for (std::uint64_t at = 0; at < bytes_; at += part) {
      CUmemGenericAllocationHandle handle = 0;
      POLYPATH_CHECK(driver_, mem_create(&handle, part, &what, 0));
      POLYPATH_CHECK(driver_, mem_map(address_ + at, part, 0, handle, 0));
      POLYPATH_CHECK(driver_, mem_release(handle));
    }
  }
  ~Mappings() {
    unmap();
    POLYPATH_WARN(driver_, mem_address_free(address_, bytes_));
  }
  Mappings(const Mappings&) = delete;
  Mappings& operator=(const Mappings&) = delete;

  void give(int gpu) const {
    CUmemAccessDesc access{};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = gpu;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    POLYPATH_CHECK(driver_, mem_set_access(address_, bytes_, &access, 1));
  }
  void unmap() {
    if (!std::exchange(is_unmapped_, true)) POLYPATH_WARN(driver_, mem_unmap(address_, bytes_));
  }

 private:
  const CudaDriver& driver_;
  std::uint64_t bytes_;
  CUdeviceptr address_ = 0;
  bool is_unmapped_ = false;
};

}  // namespace

void access_costs(Workbench& bench, Report& report) {
  const CudaDriver& driver = bench.driver();
  if (driver.mem_create == nullptr || driver.mem_set_access == nullptr)
    return report.skipped(kAccessCosts, "mapped memory", "this driver has none");
  const CurrentContext current(driver, bench.context(0));
  for (const std::uint64_t part : {2 * kMiB, 20 * kMiB, kMapped}) {
    std::vector<double> own;
    std::vector<double> other;
    std::vector<double> unmap;
    for (int time = 0; time < kTimes; ++time) {
      Mappings mappings(driver, part);
      const auto timed = [&](std::vector<double>& samples, const auto& call) {
        const double start = bench.now_us();
        call();
        samples.push_back(bench.now_us() - start);
      };
      timed(own, [&] { mappings.give(0); });
      for (int gpu = 1; gpu < bench.gpus(); ++gpu) timed(other, [&] { mappings.give(gpu); });
      timed(unmap, [&] { mappings.unmap(); });
    }
    const auto show = [&](const char* call, const std::vector<double>& samples) {
      if (samples.empty()) return;
      const std::string what = fmt::format("{}, 1 GiB in mappings of {} MiB", call, part / kMiB);
      report.figure(kAccessCosts, what, median(samples), "us");
      report.figure(kAccessCosts, what + ", the first time", samples.front(), "us");
    };
    show("mem_set_access of the own GPU", own);
    show("mem_set_access of another GPU", other);
    show("mem_unmap", unmap);
  }
}

}  // namespace polypath::facts
