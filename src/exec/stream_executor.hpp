// Runs a schedule by streams and events.
#pragma once

#include "exec/executor.hpp"

namespace polypath {

class StreamExecutor final : public Executor {
 public:
  StreamExecutor(std::shared_ptr<const CudaDriver> driver, EventPool& events)
      : driver_(std::move(driver)), events_(events) {}

  [[nodiscard]] std::string_view name() const noexcept override { return "stream"; }
  RunOutcome run(const Schedule& schedule, std::vector<BoundTransfer>& transfers) override;

 private:
  class Run;

  std::shared_ptr<const CudaDriver> driver_;
  EventPool& events_;
};

}  // namespace polypath
