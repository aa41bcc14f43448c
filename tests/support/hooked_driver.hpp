// A driver that asks a hook before each call that a run makes: the hook may let others go first, or
// throw what no driver call could.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "driver/cuda_driver.hpp"

namespace polypath::test {

/// One at a time: entry points are plain functions. The table may be used on after its end, as the
/// wrapped driver.
class HookedDriver {
 public:
  /// Gets the name of the table's member.
  using Hook = std::function<void(const std::string&)>;

  HookedDriver(const CudaDriver& driver, Hook hook) : table_(std::make_shared<CudaDriver>(driver)) {
    the_hook() = std::move(hook);
    wrap<&CudaDriver::ctx_get_current>("ctx_get_current");
    wrap<&CudaDriver::ctx_set_current>("ctx_set_current");
    wrap<&CudaDriver::event_create>("event_create");
    wrap<&CudaDriver::event_record>("event_record");
    wrap<&CudaDriver::stream_create>("stream_create");
    wrap<&CudaDriver::stream_wait_event>("stream_wait_event");
    wrap<&CudaDriver::memcpy_async>("memcpy_async");
    wrap<&CudaDriver::mem_alloc>("mem_alloc");
    wrap<&CudaDriver::mem_host_alloc>("mem_host_alloc");
    wrap<&CudaDriver::graph_instantiate>("graph_instantiate");
    wrap<&CudaDriver::graph_exec_memcpy_node_set_params>("graph_exec_memcpy_node_set_params");
    wrap<&CudaDriver::graph_launch>("graph_launch");
    wrap<&CudaDriver::graph_exec_destroy>("graph_exec_destroy");
  }
  ~HookedDriver() { the_hook() = nullptr; }
  HookedDriver(const HookedDriver&) = delete;
  HookedDriver& operator=(const HookedDriver&) = delete;

  [[nodiscard]] std::shared_ptr<CudaDriver> driver() const { return table_; }

 private:
  static Hook& the_hook() {
    static Hook hook;
    return hook;
  }

  template <auto Member>
  struct Wrapper;
  template <typename... Arguments, CUresult (*CudaDriver::*Member)(Arguments...)>
  struct Wrapper<Member> {
    static inline CUresult (*original)(Arguments...) = nullptr;
    static inline const char* name = "";
    static CUresult call(Arguments... arguments) {
      if (const Hook& hook = the_hook()) hook(name);
      return original(arguments...);
    }
  };

  template <auto Member>
  void wrap(const char* name) {
    auto& entry = (*table_).*Member;
    if (entry == nullptr) return;
    Wrapper<Member>::original = entry;
    Wrapper<Member>::name = name;
    entry = &Wrapper<Member>::call;
  }

  std::shared_ptr<CudaDriver> table_;
};

}  // namespace polypath::test
