#include <algorithm>
#include <array>
#include <vector>

#include "base/units.hpp"
#include "sections.hpp"

namespace polypath::facts {
namespace {

constexpr const char* kStagedGaps = "staged_gaps";
constexpr std::uint64_t kRingBytes = 32 * kMiB;
constexpr std::uint64_t kSmallSizes[] = {64 * kKiB, 256 * kKiB, kMiB};

struct Shape {
  std::uint64_t chunk_bytes;
  std::size_t slots;    ///< a multiple of `streams`
  std::size_t streams;  ///< of each leg; chunks go round them
};

/// Staged routes from GPU 0 to GPU 1 by one memory, alone. Stream 0 of GPU 0 is the caller's.
class StagedRoutes {
 public:
  StagedRoutes(Workbench& bench, Report& report, MemoryId staging)
      : bench_(bench),
        driver_(bench.driver()),
        report_(report),
        src_(bench.buffer(MemoryId::gpu(0), bench.bytes())),
        ring_(bench.buffer(staging, kRingBytes)),
        dst_(bench.buffer(MemoryId::gpu(1), bench.bytes())) {
    src_.fill(kSeed);
  }

  /// `second_gpu` issues the second leg. The gap is the time of a chunk beyond the slower leg's
  /// copy of it: the slope between two numbers of chunks.
  void show(const std::string& name, int second_gpu, const Shape& shape) {
    const std::uint64_t bytes = bench_.bytes();
    const auto route_of = [&](std::uint64_t part) {
      return [&, part] { issue(second_gpu, shape, part); };
    };
    make_events(second_gpu, shape);
    const RunTimes all = bench_.time(caller_, route_of(bytes));
    const RunTimes half = bench_.time(caller_, route_of(bytes / 2));
    bench_.verify(caller_, route_of(bytes), dst_, kSeed, bytes);
    const auto chunks = static_cast<double>(bytes / shape.chunk_bytes);
    const double gap = (all.device_us - half.device_us) / (chunks / 2) -
                       std::max(copy_us(0, ring_, src_, shape.chunk_bytes),
                                copy_us(second_gpu, dst_, ring_, shape.chunk_bytes));
    const std::string what =
        fmt::format("{}, chunk {}, slots {}, streams {}", name, format_bytes(shape.chunk_bytes),
                    shape.slots, shape.streams);
    report_.figure(kStagedGaps, what + ": rate", rate_gbps(bytes, all.device_us), "GB/s");
    report_.figure(kStagedGaps, what + ": gap", gap, "us");
    report_.figure(kStagedGaps, what + ": CPU", all.issue_us / chunks, "us a chunk");
  }

  /// From the caller's stream back to it.
  void show_small(const std::string& name, int second_gpu) {
    for (const std::uint64_t bytes : kSmallSizes) {
      const Shape shape{bytes, 1, 1};
      make_events(second_gpu, shape);
      const auto staged = [&] { issue(second_gpu, shape, bytes); };
      report_.figure(kStagedGaps, fmt::format("{}, one chunk of {}", name, format_bytes(bytes)),
                     bench_.time(caller_, staged).device_us, "us");
      bench_.verify(caller_, staged, dst_, kSeed, bytes);
    }
  }

  void show_direct() {
    for (const std::uint64_t bytes : kSmallSizes) {
      const auto direct = [&] {
        bench_.copy(0, dst_.address(), src_.address(), bytes, caller_[0]);
      };
      report_.figure(kStagedGaps, fmt::format("direct, one copy of {}", format_bytes(bytes)),
                     bench_.time(caller_, direct).device_us, "us");
    }
  }

 private:
  void make_events(int second_gpu, const Shape& shape) {
    written_.clear();
    read_.clear();
    for (std::size_t slot = 0; slot < shape.slots; ++slot) {
      written_.emplace_back(driver_, bench_.context(0), CU_EVENT_DISABLE_TIMING);
      read_.emplace_back(driver_, bench_.context(second_gpu), CU_EVENT_DISABLE_TIMING);
    }
  }

  void issue(int second_gpu, const Shape& shape, std::uint64_t bytes) {
    const std::size_t chunks = bytes / shape.chunk_bytes;
    POLYPATH_CHECK(driver_, event_record(fork_.get(), caller_[0]));
    for (std::size_t i = 0; i < shape.streams; ++i)
      POLYPATH_CHECK(driver_, stream_wait_event(bench_.stream(0, 1 + i), fork_.get(), 0));
    for (std::size_t chunk = 0; chunk < chunks; ++chunk) issue_chunk(second_gpu, shape, chunk);
    // A stream's last event stands for all its chunks.
    for (std::size_t i = 1; i <= std::min(shape.streams, chunks); ++i) {
      const CUevent last = read_[(chunks - i) % shape.slots].get();
      POLYPATH_CHECK(driver_, stream_wait_event(caller_[0], last, 0));
    }
  }

  void issue_chunk(int second_gpu, const Shape& shape, std::size_t chunk) {
    const std::size_t slot = chunk % shape.slots;
    const std::uint64_t offset = chunk * shape.chunk_bytes;
    const CUdeviceptr staging = ring_.address() + slot * shape.chunk_bytes;
    const CUstream in = bench_.stream(0, 1 + chunk % shape.streams);
    const CUstream out = bench_.stream(second_gpu, 1 + chunk % shape.streams);
    if (chunk >= shape.slots) POLYPATH_CHECK(driver_, stream_wait_event(in, read_[slot].get(), 0));
    bench_.copy(0, staging, src_.address() + offset, shape.chunk_bytes, in);
    POLYPATH_CHECK(driver_, event_record(written_[slot].get(), in));
    POLYPATH_CHECK(driver_, stream_wait_event(out, written_[slot].get(), 0));
    bench_.copy(second_gpu, dst_.address() + offset, staging, shape.chunk_bytes, out);
    POLYPATH_CHECK(driver_, event_record(read_[slot].get(), out));
  }

  /// Time of `bytes` in a long copy of one leg alone, without its start.
  double copy_us(int gpu, const TestBuffer& dst, const TestBuffer& src, std::uint64_t bytes) {
    const std::array stream{bench_.stream(gpu, 0)};
    const auto time = [&](std::uint64_t size) {
      const auto copy = [&] { bench_.copy(gpu, dst.address(), src.address(), size, stream[0]); };
      return bench_.time(stream, copy).device_us;
    };
    return (time(kRingBytes) - time(kRingBytes / 2)) * static_cast<double>(bytes) /
           static_cast<double>(kRingBytes / 2);
  }

  Workbench& bench_;
  const CudaDriver& driver_;
  Report& report_;
  TestBuffer src_, ring_, dst_;
  std::array<CUstream, 1> caller_{bench_.stream(0, 0)};
  Event fork_{driver_, bench_.context(0), CU_EVENT_DISABLE_TIMING};
  std::vector<Event> written_, read_;  ///< one a slot: last written, last read
};

void show_all(StagedRoutes& routes, const std::string& name, int second_gpu) {
  for (const std::size_t streams : {1U, 2U})
    for (const std::size_t slots : {4U, 8U})
      for (const std::uint64_t chunk : {512 * kKiB, kMiB, 2 * kMiB, 4 * kMiB})
        routes.show(name, second_gpu, {chunk, slots, streams});
  routes.show_small(name, second_gpu);
}

}  // namespace

void staged_gaps(Workbench& bench, Report& report) {
  if (bench.gpus() < 2) return report.skipped(kStagedGaps, "by host, by GPU", "needs 2 GPUs");
  StagedRoutes by_host(bench, report, bench.host_of(0));
  by_host.show_direct();
  show_all(by_host, "by host", 1);
  if (bench.gpus() < 3) return report.skipped(kStagedGaps, "by GPU", "needs 3 GPUs");
  StagedRoutes by_gpu(bench, report, MemoryId::gpu(2));
  show_all(by_gpu, "by GPU", 2);
  for (const std::uint64_t chunk : {kMiB, 2 * kMiB, 4 * kMiB})
    by_gpu.show("by GPU, pulled", 1, {chunk, 8, 1});
}

}  // namespace polypath::facts
