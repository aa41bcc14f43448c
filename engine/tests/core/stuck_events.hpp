// A driver whose events with timing never complete: those that are made from some time on.
#pragma once

#include <memory>
#include <mutex>
#include <set>

#include "driver/cuda_driver.hpp"

namespace polypath::test {

/// One at a time: entry points are plain functions.
class StuckEvents {
 public:
  explicit StuckEvents(const CudaDriver& driver) : table_(std::make_shared<CudaDriver>(driver)) {
    original() = &driver;
    state().events.clear();
    state().is_stuck = false;
    table_->event_create = [](CUevent* event, unsigned flags) {
      const CUresult result = original()->event_create(event, flags);
      const std::lock_guard lock(state().mutex);
      if (state().is_stuck && flags == CU_EVENT_DEFAULT) state().events.insert(*event);
      return result;
    };
    table_->event_query = [](CUevent event) {
      {
        const std::lock_guard lock(state().mutex);
        if (state().events.contains(event)) return CUDA_ERROR_NOT_READY;
      }
      return original()->event_query(event);
    };
  }
  /// From now on.
  void stick() {
    const std::lock_guard lock(state().mutex);
    state().is_stuck = true;
  }
  [[nodiscard]] std::size_t count() const {
    const std::lock_guard lock(state().mutex);
    return state().events.size();
  }
  [[nodiscard]] std::shared_ptr<const CudaDriver> driver() const { return table_; }

 private:
  struct State {
    std::mutex mutex;
    std::set<CUevent> events;
    bool is_stuck = false;
  };
  static State& state() {
    static State state;
    return state;
  }
  static const CudaDriver*& original() {
    static const CudaDriver* original = nullptr;
    return original;
  }
  std::shared_ptr<CudaDriver> table_;
};

}  // namespace polypath::test
