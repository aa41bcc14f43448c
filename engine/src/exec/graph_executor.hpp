// Runs a schedule as CUDA graphs: one for each transfer, launched on the stream of its caller. What
// cannot go as a graph goes by streams.
#pragma once

#include "exec/graph_cache.hpp"
#include "exec/stream_executor.hpp"

namespace polypath {

class GraphExecutor final : public Executor {
 public:
  /// `streams` serves where there is no graph; it and `resources` must outlive this.
  GraphExecutor(std::shared_ptr<const CudaDriver> driver, RouteResources& resources,
                StreamExecutor& streams, int cache_size)
      : driver_(driver),
        resources_(resources),
        streams_(streams),
        supported_(has_memcpy_graphs(*driver)),
        cache_(std::move(driver), cache_size) {}

  [[nodiscard]] std::string_view name() const noexcept override { return "graph"; }
  RunResult run(const GroupSchedule& schedule,
                const std::vector<BoundTransfer>& transfers) noexcept override;

  [[nodiscard]] GraphCache::Counts counts() const { return cache_.counts(); }
  void reset_counts() { cache_.reset_counts(); }
  /// GraphCache::abandon().
  void abandon() noexcept { cache_.abandon(); }
  [[nodiscard]] bool supported() const noexcept { return supported_; }

 private:
  class Run;

  std::shared_ptr<const CudaDriver> driver_;
  RouteResources& resources_;
  StreamExecutor& streams_;
  bool supported_;
  GraphCache cache_;
};

}  // namespace polypath
