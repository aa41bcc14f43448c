#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/units.hpp"
#include "sections.hpp"

namespace polypath::facts {
namespace {

/// Copies issued on GPU 0.
void gaps(Workbench& bench, Report& report, const char* kind, MemoryId from, MemoryId to) {
  const std::uint64_t total = std::min(bench.bytes(), 64 * kMiB);
  TestBuffer src = bench.buffer(from, total);
  TestBuffer dst = bench.buffer(to, total);
  src.fill(kSeed);
  const std::array streams{bench.stream(0, 0)};
  const auto copies_of = [&](std::uint64_t bytes) {
    return [&, bytes] {
      for (std::uint64_t offset = 0; offset < total; offset += bytes)
        bench.copy(0, dst.address() + offset, src.address() + offset, bytes, streams[0]);
    };
  };
  for (const std::uint64_t bytes : {256 * kKiB, 512 * kKiB, kMiB, 2 * kMiB, 4 * kMiB}) {
    const double whole = bench.time(streams, copies_of(total)).device_us;
    const RunTimes queued = bench.time(streams, copies_of(bytes));
    bench.verify(streams, copies_of(bytes), dst, kSeed, total);
    const auto copies = static_cast<double>(total / bytes);
    const std::string what = fmt::format("{}, copies of {}", kind, format_bytes(bytes));
    report.figure("copy_gaps", what + ": gap", (queued.device_us - whole) / (copies - 1), "us");
    report.figure("copy_gaps", what + ": CPU time a copy", queued.issue_us / copies, "us");
  }
}

}  // namespace

void copy_gaps(Workbench& bench, Report& report) {
  const MemoryId gpu = MemoryId::gpu(0);
  const MemoryId host = bench.host_of(0);
  if (bench.gpus() > 1) {
    gaps(bench, report, "p2p", gpu, MemoryId::gpu(1));
  } else {
    report.skipped("copy_gaps", "p2p", "needs 2 GPUs");
  }
  gaps(bench, report, "h2d", host, gpu);
  gaps(bench, report, "d2h", gpu, host);
}

}  // namespace polypath::facts
