#include <memory>

#include "base/units.hpp"
#include "sections.hpp"

namespace polypath::facts {
namespace {

constexpr const char* kSection = "default";
constexpr std::uint64_t kBytes = 4 * kMiB;
/// Whoever has not ended by then waits.
constexpr double kPatience_us = 20'000;

/// A word that streams wait for.
class Gate {
 public:
  explicit Gate(const CudaDriver& driver) : driver_(driver) {
    void* word = nullptr;
    POLYPATH_CHECK(driver_, mem_host_alloc(&word, sizeof(cuuint32_t), CU_MEMHOSTALLOC_PORTABLE));
    word_ = static_cast<cuuint32_t*>(word);
  }
  ~Gate() { POLYPATH_WARN(driver_, mem_free_host(word_)); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  /// Of the current context; null is its default stream.
  void hold(CUstream stream) {
    __atomic_store_n(word_, 0, __ATOMIC_SEQ_CST);
    POLYPATH_CHECK(driver_, stream_wait_value32(stream, reinterpret_cast<CUdeviceptr>(word_), 1,
                                                CU_STREAM_WAIT_VALUE_EQ));
  }
  void open() { __atomic_store_n(word_, 1, __ATOMIC_SEQ_CST); }

 private:
  const CudaDriver& driver_;
  cuuint32_t* word_ = nullptr;
};

/// Whether the stream of the current context does not end its work.
bool waits(const Workbench& bench, CUstream stream) {
  const double begin = bench.now_us();
  while (bench.now_us() < begin + kPatience_us)
    if (bench.driver().stream_query(stream) == CUDA_SUCCESS) return false;
  return true;
}

void finish(const Workbench& bench) {
  for (const int gpu : {0, 1}) {
    const CurrentContext current(bench.driver(), bench.context(gpu));
    POLYPATH_CHECK(bench.driver(), ctx_synchronize());
  }
}

}  // namespace

void default_streams(Workbench& bench, Report& report) {
  const CudaDriver& driver = bench.driver();
  if (bench.gpus() < 2 || driver.stream_wait_value32 == nullptr)
    return report.skipped(kSection, "copies between GPUs",
                          "needs two GPUs and cuStreamWaitValue32");
  const TestBuffer near = bench.buffer(MemoryId::gpu(0), kBytes);
  const TestBuffer far = bench.buffer(MemoryId::gpu(1), kBytes);
  const CurrentContext current(driver, bench.context(0));
  Gate gate(driver);
  for (const auto& [stream, name] : {std::pair{CUstream{nullptr}, "the default stream"},
                                     {bench.stream(0, 0), "another stream"}}) {
    {
      const CurrentContext other(driver, bench.context(1));
      gate.hold(nullptr);
    }
    POLYPATH_CHECK(driver, memcpy_async(far.address(), near.address(), kBytes, stream));
    report.figure(kSection, fmt::format("copy to gpu1 on {} of gpu0 waits for gpu1's", name),
                  waits(bench, stream) ? 1 : 0, "");
    gate.open();
    finish(bench);

    gate.hold(stream);
    POLYPATH_CHECK(driver, memcpy_async(far.address(), near.address(), kBytes, stream));
    {
      const CurrentContext other(driver, bench.context(1));
      POLYPATH_CHECK(driver, memset_d8_async(far.address(), 0, 1, nullptr));
      report.figure(kSection, fmt::format("gpu1's waits for a copy to it on {} of gpu0", name),
                    waits(bench, nullptr) ? 1 : 0, "");
    }
    gate.open();
    finish(bench);
  }
}

}  // namespace polypath::facts
