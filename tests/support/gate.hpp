// A gate holds streams back until the test opens it: a wait for a value in pinned host memory.
//
// While streams are held, a test must make and free no buffer: the driver may wait for all streams
// then. So it makes all before, and the gate last of all: its end opens it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <set>
#include <thread>

#include "driver/cuda_driver.hpp"
#include "driver/resources.hpp"

namespace polypath::test {

class Gate {
 public:
  /// `context`: of any GPU; the word is allocated there.
  Gate(const CudaDriver& driver, CUcontext context);
  /// Opens it, and waits for the contexts of all streams that it held. Fails the test when the gate
  /// had to open by itself, after five minutes: a wait depended on the held streams.
  ~Gate();
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  /// What is queued on `stream` of `context` from now on runs only when the gate is open.
  void hold(CUstream stream, CUcontext context);
  void open() noexcept;

 private:
  void watch(const std::stop_token& stop);

  const CudaDriver& driver_;
  CUcontext context_;
  std::set<CUcontext> held_;
  std::uint32_t* word_ = nullptr;
  std::mutex mutex_;
  std::condition_variable_any ended_;
  bool opened_by_watchdog_ = false;
  std::jthread watchdog_;
};

}  // namespace polypath::test
