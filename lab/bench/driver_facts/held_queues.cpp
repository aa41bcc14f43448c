// How many streams that are held back it takes until a copy of another stream does not end either:
// streams share hardware queues, by the direction of their copies.
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "driver/context_guard.hpp"
#include "gate.hpp"
#include "sections.hpp"

namespace polypath::facts {
namespace {

constexpr const char* kHeldQueues = "held_queues";
constexpr std::uint64_t kHeldBytes = 4 * kMiB;
constexpr int kMaxHeld = 40;

struct Way {
  const char* name;
  CUdeviceptr dst;
  CUdeviceptr src;
};

/// Holds one stream after another, each with a copy of `held` after the gate, until a copy of
/// `other` does not end; the number of streams held then, 0 when all pass.
int streams_to_stop(Workbench& bench, const Way& held, const Way& other, bool by_event) {
  const CudaDriver& driver = bench.driver();
  const Stream first(driver, bench.context(0));
  const Stream free(driver, bench.context(0));
  std::vector<Stream> streams;
  for (int i = 0; i < kMaxHeld; ++i) streams.emplace_back(driver, bench.context(0));
  const Event fork(driver, bench.context(0), CU_EVENT_DISABLE_TIMING);
  bench.copy(0, other.dst, other.src, kHeldBytes, free.get());
  POLYPATH_CHECK(driver, stream_synchronize(free.get()));

  Gate gate(driver);
  int stopped = 0;
  gate.hold(first.get());
  POLYPATH_CHECK(driver, event_record(fork.get(), first.get()));
  for (int i = 0; i < kMaxHeld && stopped == 0; ++i) {
    const CUstream stream = streams[static_cast<std::size_t>(i)].get();
    if (by_event) {
      POLYPATH_CHECK(driver, stream_wait_event(stream, fork.get(), 0));
    } else {
      gate.hold_too(stream);
    }
    bench.copy(0, held.dst, held.src, kHeldBytes, stream);
    bench.copy(0, other.dst, other.src, kHeldBytes, free.get());
    if (waits(bench, free.get())) stopped = i + 1;
  }
  gate.open();
  finish(bench);
  return stopped;
}

}  // namespace

void held_queues(Workbench& bench, Report& report) {
  const CudaDriver& driver = bench.driver();
  if (driver.stream_wait_value32 == nullptr)
    return report.skipped(kHeldQueues, "held streams", "needs cuStreamWaitValue32");
  const TestBuffer near = bench.buffer(MemoryId::gpu(0), kHeldBytes);
  const TestBuffer near_too = bench.buffer(MemoryId::gpu(0), kHeldBytes);
  const TestBuffer host = bench.buffer(bench.host_of(0), kHeldBytes);
  const TestBuffer far = bench.buffer(MemoryId::gpu(bench.gpus() > 1 ? 1 : 0), kHeldBytes);
  const CurrentContext current(driver, bench.context(0));
  std::vector<Way> ways{{"to the host", host.address(), near.address()},
                        {"from the host", near.address(), host.address()},
                        {"on the GPU", near_too.address(), near.address()}};
  if (bench.gpus() > 1) ways.push_back({"to a GPU", far.address(), near.address()});
  for (const bool by_event : {false, true})
    for (const Way& held : ways)
      for (const Way& other : ways)
        report.figure(kHeldQueues,
                      fmt::format("held by {}, copies {}: stop one {} (0: none)",
                                  by_event ? "an event" : "a value", held.name, other.name),
                      streams_to_stop(bench, held, other, by_event), "streams");
}

}  // namespace polypath::facts
