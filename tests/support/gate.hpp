// A gate holds streams back until the test opens it: a wait for a value in pinned host memory. A test
// declares it after all that waits behind it: its end opens it, and freeing memory waits for streams.
#pragma once

#include <cstdint>
#include <set>

#include "driver/cuda_driver.hpp"
#include "tune/resources.hpp"

namespace polypath::test {

class Gate {
 public:
  /// `context`: of any GPU; the word is allocated there.
  Gate(const CudaDriver& driver, CUcontext context);
  /// Opens it, and waits for the contexts of all streams that it held.
  ~Gate();
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  /// False where the driver cannot hold streams back.
  [[nodiscard]] bool usable() const { return driver_.stream_wait_value32 != nullptr; }
  /// What is queued on `stream` of `context` from now on runs only when the gate is open.
  void hold(CUstream stream, CUcontext context);
  void open() noexcept;

 private:
  const CudaDriver& driver_;
  CUcontext context_;
  std::set<CUcontext> held_;
  std::uint32_t* word_ = nullptr;
};

}  // namespace polypath::test
