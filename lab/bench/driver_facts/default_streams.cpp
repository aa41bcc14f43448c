#include "base/units.hpp"
#include "gate.hpp"
#include "sections.hpp"

namespace polypath::facts {
namespace {

constexpr const char* kDefaultStreams = "default";
constexpr std::uint64_t kCopied = 4 * kMiB;

}  // namespace

void default_streams(Workbench& bench, Report& report) {
  const CudaDriver& driver = bench.driver();
  if (bench.gpus() < 2 || driver.stream_wait_value32 == nullptr)
    return report.skipped(kDefaultStreams, "copies between GPUs",
                          "needs two GPUs and cuStreamWaitValue32");
  const TestBuffer near = bench.buffer(MemoryId::gpu(0), kCopied);
  const TestBuffer far = bench.buffer(MemoryId::gpu(1), kCopied);
  const CurrentContext current(driver, bench.context(0));
  Gate gate(driver);
  for (const auto& [stream, name] : {std::pair{CUstream{nullptr}, "the default stream"},
                                     {bench.stream(0, 0), "another stream"}}) {
    {
      const CurrentContext other(driver, bench.context(1));
      gate.hold(nullptr);
    }
    POLYPATH_CHECK(driver, memcpy_async(far.address(), near.address(), kCopied, stream));
    report.figure(kDefaultStreams, fmt::format("copy to gpu1 on {} of gpu0 waits for gpu1's", name),
                  waits(bench, stream) ? 1 : 0, "");
    gate.open();
    finish(bench);

    gate.hold(stream);
    POLYPATH_CHECK(driver, memcpy_async(far.address(), near.address(), kCopied, stream));
    {
      const CurrentContext other(driver, bench.context(1));
      POLYPATH_CHECK(driver, memset_d8_async(far.address(), 0, 1, nullptr));
      report.figure(kDefaultStreams,
                    fmt::format("gpu1's waits for a copy to it on {} of gpu0", name),
                    waits(bench, nullptr) ? 1 : 0, "");
    }
    gate.open();
    finish(bench);
  }
}

}  // namespace polypath::facts
