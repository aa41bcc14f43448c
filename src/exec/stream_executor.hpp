// Runs a schedule by streams and events.
#pragma once

#include "exec/copy_engine.hpp"
#include "exec/executor.hpp"

namespace polypath {

class StreamExecutor final : public Executor {
 public:
  StreamExecutor(std::shared_ptr<const CudaDriver> driver, EventPool& events,
                 const CopyEngine& copies)
      : driver_(std::move(driver)), events_(events), copies_(copies) {}

  [[nodiscard]] std::string_view name() const noexcept override { return "stream"; }
  RunOutcome run(const Schedule& schedule, std::vector<BoundTransfer>& transfers) override;

 private:
  class Run;

  std::shared_ptr<const CudaDriver> driver_;
  EventPool& events_;
  const CopyEngine& copies_;
};

}  // namespace polypath
