// A gate that holds streams back, for sections that look at what waits then.
#pragma once

#include "workbench.hpp"

namespace polypath::facts {

/// A word in pinned host memory that streams wait for. Made and used with a context current.
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

  /// Closes it, and holds `stream` of the current context; null is its default stream.
  void hold(CUstream stream) {
    __atomic_store_n(word_, 0, __ATOMIC_SEQ_CST);
    hold_too(stream);
  }
  /// Holds one more while it is closed.
  void hold_too(CUstream stream) {
    POLYPATH_CHECK(driver_, stream_wait_value32(stream, reinterpret_cast<CUdeviceptr>(word_), 1,
                                                CU_STREAM_WAIT_VALUE_EQ));
  }
  void open() { __atomic_store_n(word_, 1, __ATOMIC_SEQ_CST); }

 private:
  const CudaDriver& driver_;
  cuuint32_t* word_ = nullptr;
};

/// Whether the stream of the current context does not end its work within 20 ms, which is far more
/// than the copies take.
inline bool waits(const Workbench& bench, CUstream stream) {
  constexpr double kTimeoutUs = 20'000;
  const double begin = bench.now_us();
  while (bench.now_us() < begin + kTimeoutUs)
    if (bench.driver().stream_query(stream) == CUDA_SUCCESS) return false;
  return true;
}

/// Waits for all work of all GPUs.
inline void finish(const Workbench& bench) {
  for (int gpu = 0; gpu < bench.gpus(); ++gpu) {
    const CurrentContext current(bench.driver(), bench.context(gpu));
    POLYPATH_CHECK(bench.driver(), ctx_synchronize());
  }
}

}  // namespace polypath::facts
