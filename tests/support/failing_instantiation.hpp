// A driver whose next instantiations of graphs fail: several in a row, which a FaultInjector does
// not do.
#pragma once

#include <memory>

#include "driver/cuda_driver.hpp"

namespace polypath::test {

class FailingInstantiation {
 public:
  /// One at a time; the table may outlive it.
  explicit FailingInstantiation(const CudaDriver& driver)
      : table_(std::make_shared<CudaDriver>(driver)) {
    state() = {driver.graph_instantiate, 0, CUDA_SUCCESS, 0};
    table_->graph_instantiate = [](CUgraphExec* exec, CUgraph graph, unsigned long long flags) {
      State& now = state();
      ++now.calls;
      if (now.left == 0) return now.really(exec, graph, flags);
      --now.left;
      return now.result;
    };
  }
  ~FailingInstantiation() { state().left = 0; }
  FailingInstantiation(const FailingInstantiation&) = delete;
  FailingInstantiation& operator=(const FailingInstantiation&) = delete;

  [[nodiscard]] std::shared_ptr<const CudaDriver> driver() const { return table_; }
  /// The next `times` instantiations are not carried out.
  void fail(int times, CUresult result) {
    state().left = times;
    state().result = result;
  }
  /// How often the driver was asked.
  [[nodiscard]] int calls() const { return state().calls; }

 private:
  struct State {
    decltype(CudaDriver::graph_instantiate) really = nullptr;
    int left = 0;
    CUresult result = CUDA_SUCCESS;
    int calls = 0;
  };
  static State& state() {
    static State state;
    return state;
  }

  std::shared_ptr<CudaDriver> table_;
};

}  // namespace polypath::test
