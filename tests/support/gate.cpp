#include "support/gate.hpp"

#include <gtest/gtest.h>

#include <chrono>

namespace polypath::test {

Gate::Gate(const CudaDriver& driver, CUcontext context) : driver_(driver), context_(context) {
  const CurrentContext current(driver, context);
  void* memory = nullptr;
  POLYPATH_CHECK(driver, mem_host_alloc(&memory, sizeof *word_, CU_MEMHOSTALLOC_PORTABLE));
  word_ = static_cast<std::uint32_t*>(memory);
  *word_ = 0;
  watchdog_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
}

Gate::~Gate() {
  watchdog_.request_stop();
  watchdog_.join();
  EXPECT_FALSE(opened_by_watchdog_) << "something waited for the held streams";
  open();
  for (const CUcontext held : held_) {
    const CurrentContext current(driver_, held, std::nothrow);
    POLYPATH_WARN(driver_, ctx_synchronize());
  }
  const CurrentContext current(driver_, context_, std::nothrow);
  POLYPATH_WARN(driver_, mem_free_host(word_));
}

void Gate::hold(CUstream stream, CUcontext context) {
  const CurrentContext current(driver_, context);
  held_.insert(context);
  POLYPATH_CHECK(driver_, stream_wait_value32(stream, reinterpret_cast<CUdeviceptr>(word_), 1,
                                              CU_STREAM_WAIT_VALUE_GEQ));
}

void Gate::watch(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  ended_.wait_for(lock, stop, std::chrono::minutes(5), [] { return false; });
  if (stop.stop_requested()) return;
  opened_by_watchdog_ = true;
  open();
}

void Gate::open() noexcept { __atomic_store_n(word_, 1, __ATOMIC_RELEASE); }

}  // namespace polypath::test
