// Runs a schedule by streams and events.
#pragma once

#include "exec/executor.hpp"

namespace polypath {

class StreamExecutor final : public Executor {
 public:
  /// `resources` must outlive it.
  StreamExecutor(std::shared_ptr<const CudaDriver> driver, RouteResources& resources)
      : driver_(std::move(driver)), resources_(resources) {}

  [[nodiscard]] std::string_view name() const noexcept override { return "stream"; }
  RunResult run(const GroupSchedule& schedule,
                const std::vector<BoundTransfer>& transfers) noexcept override;

 private:
  class Run;

  std::shared_ptr<const CudaDriver> driver_;
  RouteResources& resources_;
};

}  // namespace polypath
