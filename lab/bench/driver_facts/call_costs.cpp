#include <vector>

#include "base/units.hpp"
#include "driver/pointer_attributes.hpp"
#include "sections.hpp"
#include "tune/group_timer.hpp"

namespace polypath::facts {
namespace {

constexpr const char* kCallCosts = "call_costs";
constexpr int kCalls = 200;  ///< in a round; few enough for the driver's queue

}  // namespace

void call_costs(Workbench& bench, Report& report) {
  const CudaDriver& driver = bench.driver();
  const CurrentContext current(driver, bench.context(0));
  const CUstream stream = bench.stream(0, 0);
  const CUstream other = bench.stream(0, 1);
  const CUstream peer = bench.stream(bench.gpus() - 1, 2);
  const auto cost = [&](const std::string& what, const auto& call) {
    std::vector<double> samples;
    for (int round = 0; round < kRounds; ++round) {
      const double start = bench.now_us();
      for (int i = 0; i < kCalls; ++i) call();
      samples.push_back((bench.now_us() - start) / kCalls);
      for (const CUstream used : {stream, other, peer})
        POLYPATH_CHECK(driver, stream_synchronize(used));
    }
    report.figure(kCallCosts, what, median(samples), "us");
  };

  TestBuffer gpu = bench.buffer(MemoryId::gpu(0), kMiB);
  TestBuffer host = bench.buffer(bench.host_of(0), kMiB);
  const TestBuffer far = bench.buffer(MemoryId::gpu(bench.gpus() - 1), kMiB);
  gpu.fill(1);
  host.fill(2);
  const auto copy_cost = [&](const char* kind, const TestBuffer& dst, const TestBuffer& src) {
    cost(kind, [&] {
      POLYPATH_CHECK(driver, memcpy_async(dst.address(), src.address(), 4 * kKiB, stream));
    });
  };
  copy_cost("memcpy_async h2d 4K", gpu, host);
  copy_cost("memcpy_async d2h 4K", host, gpu);

  const Event owned(driver, bench.context(0), CU_EVENT_DISABLE_TIMING);
  const CUevent event = owned.get();
  const auto record = [&] { POLYPATH_CHECK(driver, event_record(event, stream)); };
  const auto wait_on = [&](CUstream waiting) {
    POLYPATH_CHECK(driver, stream_wait_event(waiting, event, 0));
  };
  report.figure(kCallCosts, "event_query of an event never recorded", driver.event_query(event),
                "CUresult");
  cost("event_record", record);
  cost("event_query, completed", [&] { POLYPATH_CHECK(driver, event_query(event)); });
  cost("stream_wait_event, the stream's own event", [&] { wait_on(stream); });
  cost("stream_wait_event, another stream's event", [&] { wait_on(other); });
  cost("event_record, and another stream's wait", [&] { record(), wait_on(other); });
  if (bench.gpus() > 1) {
    copy_cost("memcpy_async p2p 4K", far, gpu);
    cost("stream_wait_event, another GPU's event", [&] { wait_on(peer); });
    cost("event_record, and another GPU's wait", [&] { record(), wait_on(peer); });
  } else {
    report.skipped(kCallCosts, "calls for another GPU", "needs 2 GPUs");
  }

  cost("ctx_set_current", [&] { POLYPATH_CHECK(driver, ctx_set_current(bench.context(0))); });
  PointerAttributes attributes;
  for (const unsigned count : {1U, PointerAttributes::kCount})
    cost(fmt::format("pointer_get_attributes, {}", count),
         [&] { attributes.ask(driver, gpu.address() + 1, count); });
  CUstreamCaptureStatus status{};
  if (driver.stream_is_capturing != nullptr)
    cost("stream_is_capturing",
         [&] { POLYPATH_CHECK(driver, stream_is_capturing(stream, &status)); });
}

}  // namespace polypath::facts
