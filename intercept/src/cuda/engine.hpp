// The engine in this process: one context of libpolypath, made when the first call is worth it, and
// destroyed when a GPU is reset. And what is done once a process, when its first replaced call
// comes: not before, because the shim is loaded into every program of a job, most of which never
// use CUDA. Any thread.
#pragma once

#include <pthread.h>

#include <cstddef>
#include <cstdint>

#include "cuda/intercepted.hpp"
#include "gate/polypath_api.hpp"

namespace polypath::preload {

/// Prepares for the end of the process and for its children. Any number of times.
void init_process() noexcept;

/// Functions of libpolypath; null before the first engine was made. Any thread.
const PolypathApi& polypath_api() noexcept;

/// A call of the engine, or several. While it lives the engine is not destroyed, and what this
/// thread calls is the engine's own and goes to the driver. The program's errno is as before
/// afterwards; a cancellation of the thread (pthread_cancel) waits for the end.
class ApiScope {
 public:
  enum class Start : bool { no, yes };

  /// Without an engine when libpolypath or a GPU is missing, the process is a fork of one that has
  /// an engine, this thread is in a call of the engine, or another thread is just making it or
  /// destroying it: no thread waits for that. `start`: makes the engine when there is none yet.
  explicit ApiScope(Start start) noexcept;
  ~ApiScope();
  ApiScope(const ApiScope&) = delete;
  ApiScope& operator=(const ApiScope&) = delete;

  explicit operator bool() const noexcept { return engine_ != nullptr; }
  const Engine* operator->() const noexcept { return engine_; }
  const Engine& operator*() const noexcept { return *engine_; }

 private:
  const Engine* engine_ = nullptr;
  int errno_;
  int cancel_state_ = PTHREAD_CANCEL_ENABLE;
};

/// Whether this thread is in a call of the engine: what it calls is the engine's own.
bool is_inside_engine() noexcept;

/// Whether an engine may come, or is there: whether calls should be recorded for it.
bool may_have_engine() noexcept;

/// For what the starting thread does last: the engine is there for all from now on.
void publish_engine() noexcept;

/// While it lives there is no engine, and none is made. Calls that are inside finish first. Nothing
/// happens where this thread is inside itself: what it does is the engine's own.
class ApiResetScope {
 public:
  /// `gpu` is going to be reset.
  explicit ApiResetScope(CUdevice gpu) noexcept;
  ~ApiResetScope();
  ApiResetScope(const ApiResetScope&) = delete;
  ApiResetScope& operator=(const ApiResetScope&) = delete;

 private:
  bool is_inside_;
};

}  // namespace polypath::preload
