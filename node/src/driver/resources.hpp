// Owners of driver objects: a GPU's primary context, streams, events. Each keeps a reference to the
// driver table, which must outlive it. Failures of a destructor are logged.
#pragma once

#include <new>
#include <utility>

#include "driver/check.hpp"
#include "driver/cuda_driver.hpp"

namespace polypath {

/// Retains the primary context of a GPU; creates it (about 0.2 s) when it is not active.
class PrimaryContext {
 public:
  PrimaryContext(const CudaDriver& driver, int gpu);
  ~PrimaryContext();
  PrimaryContext(const PrimaryContext&) = delete;
  PrimaryContext& operator=(const PrimaryContext&) = delete;

  [[nodiscard]] CUcontext get() const noexcept { return context_; }
  /// Whether its GPU was reset since, as far as that was announced (context_resets.hpp).
  [[nodiscard]] bool is_lost() const noexcept;
  /// Whether it is the driver's context still: also where a reset was not announced.
  [[nodiscard]] bool is_there() const noexcept;

 private:
  const CudaDriver& driver_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  unsigned resets_ = 0;            // of the GPU before
  unsigned long long number_ = 0;  // the driver's, of the context; 0: it gives none
};

/// Makes a context current to this thread, until the end of the scope.
class CurrentContext {
 public:
  CurrentContext(const CudaDriver& driver, CUcontext context);
  /// For destructors: a failure is logged.
  CurrentContext(const CudaDriver& driver, CUcontext context, std::nothrow_t) noexcept;
  ~CurrentContext();
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

 private:
  const CudaDriver& driver_;
  bool pushed_ = false;
};

/// Whether a stream stands for one of the context that is current.
bool is_special_stream(CUstream stream) noexcept;

/// A non-blocking stream of `context`.
class Stream {
 public:
  Stream(const CudaDriver& driver, CUcontext context);
  Stream(Stream&& other) noexcept
      : driver_(other.driver_), stream_(std::exchange(other.stream_, nullptr)) {}
  ~Stream();
  Stream& operator=(Stream&&) = delete;

  [[nodiscard]] CUstream get() const noexcept { return stream_; }

 private:
  const CudaDriver& driver_;
  CUstream stream_ = nullptr;
};

/// An event of `context`; `flags` as for cuEventCreate.
class Event {
 public:
  Event(const CudaDriver& driver, CUcontext context, unsigned flags = CU_EVENT_DEFAULT);
  Event(Event&& other) noexcept
      : driver_(other.driver_), event_(std::exchange(other.event_, nullptr)) {}
  ~Event();
  Event& operator=(Event&&) = delete;

  [[nodiscard]] CUevent get() const noexcept { return event_; }

 private:
  const CudaDriver& driver_;
  CUevent event_ = nullptr;
};

/// Time between two completed timing events of one context, microseconds.
double elapsed_us(const CudaDriver& driver, const Event& start, const Event& end);

}  // namespace polypath
