// A driver that injects faults: a table that behaves as the one it wraps, counts every
// call, and lets one chosen call fail instead of being carried out.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "driver/cuda_driver.hpp"

namespace polypath {

/// Entry points are plain C functions, so the counts and the chosen fault are one state of the
/// process: at most one FaultInjector exists at a time. Calls may come from any thread, also while
/// another arms a fault; the counters are relaxed atomics, so that they order nothing and hide no
/// race of the code under test. cuGetErrorName and cuGetErrorString are neither counted nor ever
/// failed.
///
/// A test of every call in turn:
///
///   FaultInjector injector(driver);
///   transfer(*injector.driver());
///   for (std::uint64_t n = 1, calls = injector.calls(); n <= calls; ++n) {
///     injector.clear();
///     injector.fail_call(n, CUDA_ERROR_UNKNOWN);
///     transfer(*injector.driver());   // an error, or the right bytes
///   }
class FaultInjector {
 public:
  /// Throws Error when another injector exists.
  explicit FaultInjector(std::shared_ptr<const CudaDriver> driver);
  /// Disarms. The table may be used on, as the wrapped driver, until another injector is made.
  ~FaultInjector();
  FaultInjector(const FaultInjector&) = delete;
  FaultInjector& operator=(const FaultInjector&) = delete;

  /// The wrapping table. An entry that the wrapped driver lacks is null here too.
  [[nodiscard]] std::shared_ptr<const CudaDriver> driver() const noexcept { return driver_; }

  /// The `nth` call from now on (1: the next one) of `symbol`, an exported name such as
  /// "cuMemcpyAsync", returns `result` and does nothing. Replaces the fault chosen before. The
  /// calls after it are carried out. Throws InvalidArgument for a symbol that is not in
  /// cuda_symbols.def, or is never failed, and for nth = 0.
  void fail(std::string_view symbol, std::uint64_t nth, CUresult result);
  /// The same for the `nth` call from now on of any symbol.
  void fail_call(std::uint64_t nth, CUresult result);
  /// Disarms, and sets all counts and last_failed() back.
  void clear() noexcept;

  /// Calls since the injector was made or cleared, the failed one included.
  [[nodiscard]] std::uint64_t calls() const noexcept;
  /// The same by exported name; symbols never called are left out.
  [[nodiscard]] std::map<std::string, std::uint64_t> calls_by_symbol() const;
  /// Exported name of the call that was failed last; empty while the fault has not been met.
  [[nodiscard]] std::string last_failed() const;

 private:
  std::shared_ptr<const CudaDriver> driver_;
};

}  // namespace polypath
