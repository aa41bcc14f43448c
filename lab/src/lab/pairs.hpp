// Times two ways of doing one thing, in alternating pairs: native copies against polypath, one plan
// against another. What drifts (clocks, other users of the host links) then meets both alike.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "core/node_source.hpp"
#include "driver/cuda_driver.hpp"

namespace polypath {

/// The time now in microseconds, from any origin: that of the CPU that issues.
using ClockFunction = std::function<double()>;
/// std::chrono::steady_clock.
double steady_clock_us();

struct PairOptions {
  int warmup = 1;       ///< untimed pairs first
  int iterations = 10;  ///< timed pairs, at least 1
  /// Issued on the first stream before each start event, untimed: keeps the GPU busy while the CPU
  /// issues. Empty: nothing.
  std::function<void()> ahead = {};
  ClockFunction clock = steady_clock_us;  ///< on a simulated node: its virtual time
};

/// What was measured of one way; microseconds, in the order in which it was measured.
struct WaySamples {
  std::vector<double> device_us;  ///< from the start event to the end of all that was issued
  std::vector<double> issue_us;   ///< CPU time of the issuing call

  [[nodiscard]] double median_device_us() const;
  [[nodiscard]] double median_issue_us() const;
};

struct PairSamples {
  WaySamples native;
  WaySamples polypath;
};

/// Runs native, polypath, native, polypath... Each callable issues its work on (at least one of)
/// `streams` and returns without waiting; every stream is idle, and the context
/// of the first is current, when it is called.
///
/// The time of a way is that of the whole group: a start event on the first stream, which all
/// others wait for; the call; then the first stream waits for all others, and an end event. One
/// fork before everything and one join after it: the streams run at once. Without `ahead` the CPU
/// time that passes before the work starts counts; with it the time is the GPU's, as for a stream
/// that has work, and the CPU's is in issue_us.
///
/// Throws what a callable throws, DriverError when a timing call fails, InvalidArgument for no
/// stream or no iteration; the streams have been synchronised then, unless that failed as well.
/// `driver` must be that of the streams. Streams may belong to different contexts; none may be the
/// null stream.
PairSamples measure_pairs(const CudaDriver& driver, std::span<const CUstream> streams,
                          const std::function<void()>& native,
                          const std::function<void()>& polypath, const PairOptions& options);

/// Microseconds, from any origin: steady_clock_us on this machine's GPUs; on a simulated node the
/// virtual time of its CPU, by which its calls take what the node file says (steady_clock_us where
/// the driver library of the node does not tell it). May be called from any thread while the driver
/// is loaded.
ClockFunction cpu_clock(const NodeSource& source);

/// To be called by a thread before (true) and after it issues work while others do: a simulated
/// node lets its devices go no further than the thread has come. Elsewhere it does nothing.
std::function<void(bool)> issuing_notice(const NodeSource& source);

}  // namespace polypath
