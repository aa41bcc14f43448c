// All GPUs of the simulated node with contexts, peer access, one buffer each and one in host
// memory; and a stopwatch in virtual time around work on many streams.
#pragma once

#include <cuda.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

namespace polypath::sim::test {

/// Ends the test program when a driver call fails: nothing after it would mean anything.
inline void check(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  const char* name = "?";
  cuGetErrorName(result, &name);
  ADD_FAILURE() << call << ": " << name;
  std::abort();
}
#define CHECK_CUDA(call) ::polypath::sim::test::check((call), #call)

class Rig {
 public:
  /// Contexts on all GPUs of the node that POLYPATH_NODE names. `bytes`: size of each buffer.
  explicit Rig(std::size_t bytes);

  [[nodiscard]] int gpus() const { return static_cast<int>(contexts_.size()); }
  [[nodiscard]] CUdeviceptr gpu(int index) const {
    return buffers_[static_cast<std::size_t>(index)];
  }
  [[nodiscard]] CUdeviceptr host() const { return host_; }

  void use(int gpu) { CHECK_CUDA(cuCtxSetCurrent(contexts_[static_cast<std::size_t>(gpu)])); }
  /// A stream of this GPU; the same one for the same number.
  CUstream stream(int gpu, int number);
  CUevent event(int gpu);
  /// Staging memory of at least this size; the same one for the same key.
  CUdeviceptr staging(int gpu, int number, std::size_t bytes);
  CUdeviceptr host_staging(int number, std::size_t bytes);

  /// Virtual time from a fork event to the join of everything that `work` issues on streams which
  /// it got by forked(). Runs on GPU 0's stream.
  double measure_us(const std::function<void()>& work);
  /// A stream as above that waits for the fork of the present measurement.
  CUstream forked(int gpu, int number);

 private:
  std::vector<CUcontext> contexts_;
  std::vector<CUdeviceptr> buffers_;
  CUdeviceptr host_ = 0;
  std::map<std::pair<int, int>, CUstream> streams_;
  std::map<std::pair<int, int>, std::pair<CUdeviceptr, std::size_t>> staging_;
  std::map<int, std::vector<CUevent>> events_;
  std::map<int, std::size_t> events_used_;
  std::vector<std::pair<int, CUstream>> forked_;
  CUevent fork_ = nullptr;
};

}  // namespace polypath::sim::test
