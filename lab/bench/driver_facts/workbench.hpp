// What all sections measure with: the node, its contexts and streams, a clock, and timed runs.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "core/node_source.hpp"
#include "lab/pairs.hpp"
#include "tune/measuring_set.hpp"
#include "tune/test_buffer.hpp"

namespace polypath::facts {

inline constexpr std::uint64_t kSeed = 3;  ///< of the contents that are copied
inline constexpr int kRounds = 21;         ///< of calls that are timed by turns

/// Medians of repeated runs, microseconds.
struct RunTimes {
  double device_us = 0;  ///< from an event before everything to one after it
  double issue_us = 0;   ///< CPU time of the issuing calls
};

/// Every member may throw DriverError. Not thread-safe.
class Workbench {
 public:
  explicit Workbench(NodeSource source);

  [[nodiscard]] const CudaDriver& driver() const noexcept { return *source_.driver; }
  [[nodiscard]] int gpus() const noexcept { return static_cast<int>(source_.node.gpus.size()); }
  [[nodiscard]] bool simulated() const noexcept { return source_.simulated; }
  [[nodiscard]] CUcontext context(int gpu) const { return measuring_.context(gpu); }
  [[nodiscard]] CUstream stream(int gpu, std::size_t number) {
    return measuring_.stream(gpu, number);
  }
  /// The host memory nearest to a GPU.
  [[nodiscard]] MemoryId host_of(int gpu) const;
  [[nodiscard]] TestBuffer buffer(MemoryId memory, std::uint64_t bytes) const;

  /// Size of a long run of copies.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  /// CPU time, microseconds from any origin; on a simulated node its virtual time.
  [[nodiscard]] double now_us() const { return clock_(); }

  /// Times what `issue` issues on the idle `streams`, or on others that the first one waits for.
  RunTimes time(std::span<const CUstream> streams, const std::function<void()>& issue) const;
  /// Poisons `dst`, runs `issue` as `time` does, and throws Error unless the first `bytes` of `dst`
  /// then hold the pattern `seed`.
  void verify(std::span<const CUstream> streams, const std::function<void()>& issue,
              TestBuffer& dst, std::uint64_t seed, std::uint64_t bytes) const;
  /// A copy, issued with the context of its stream current.
  void copy(int gpu, CUdeviceptr dst, CUdeviceptr src, std::uint64_t bytes, CUstream stream) const;

 private:
  NodeSource source_;
  MeasurementContext measuring_;
  std::uint64_t bytes_;
  int repetitions_;
  ClockFunction clock_;
};

}  // namespace polypath::facts
