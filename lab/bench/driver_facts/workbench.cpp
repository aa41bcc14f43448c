#include "workbench.hpp"

#include <fmt/format.h>

#include <vector>

#include "base/error.hpp"
#include "base/units.hpp"
#include "driver/library.hpp"
#include "tune/group_timer.hpp"

namespace polypath::facts {
namespace {

ClockFunction clock_of(const NodeSource& source) {
  if (!source.simulated) return steady_clock_us;
  std::string why;
  void* library = open_library(source.driver->library, &why);
  if (library == nullptr) throw Error(why);
  const auto clock = find_symbol<double (*)()>(library, "polypath_sim_clock_us");
  if (clock == nullptr) throw Error(source.driver->library + " has no virtual clock");
  return clock;
}

}  // namespace

// In virtual time nothing jitters, so fewer and shorter runs tell the same.
Workbench::Workbench(NodeSource source)
    : source_(std::move(source)),
      measuring_(*source_.driver, source_.node, kMiB),
      bytes_(source_.simulated ? 32 * kMiB : 512 * kMiB),
      repetitions_(source_.simulated ? 1 : 5),
      clock_(clock_of(source_)) {}

MemoryId Workbench::host_of(int gpu) const {
  return MemoryId::host(source_.node.gpus[static_cast<std::size_t>(gpu)].numa);
}

TestBuffer Workbench::buffer(MemoryId memory, std::uint64_t bytes) const {
  return TestBuffer(driver(), source_.node, memory, bytes);
}

RunTimes Workbench::time(std::span<const CUstream> streams,
                         const std::function<void()>& issue) const {
  GroupTimer timer(driver(), streams);
  std::vector<double> device;
  std::vector<double> cpu;
  for (int i = 0; i < repetitions_ + 1; ++i) {
    double issue_us = 0;
    const double device_us = timer.run([&] {
      const double start = now_us();
      issue();
      issue_us = now_us() - start;
    });
    if (i == 0) continue;  // warms up
    device.push_back(device_us);
    cpu.push_back(issue_us);
  }
  return {median(device), median(cpu)};
}

void Workbench::verify(std::span<const CUstream> streams, const std::function<void()>& issue,
                       TestBuffer& dst, std::uint64_t seed, std::uint64_t bytes) const {
  dst.poison();
  GroupTimer(driver(), streams).run(issue);
  if (const auto at = dst.first_difference(seed); at && *at < bytes)
    throw Error(fmt::format("wrong byte at offset {} of {}", *at, to_string(dst.memory())));
}

void Workbench::copy(int gpu, CUdeviceptr dst, CUdeviceptr src, std::uint64_t bytes,
                     CUstream stream) const {
  const CurrentContext current(driver(), context(gpu));
  POLYPATH_CHECK(driver(), memcpy_async(dst, src, bytes, stream));
}

}  // namespace polypath::facts
