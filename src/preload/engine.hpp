// The engine in this process: one context of libpolypath, made when the first call is worth it, and never
// destroyed. Any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "polypath/polypath.h"

namespace polypath::preload {

/// The functions of libpolypath that the shim calls: its C API, opened at run time.
struct Engine {
  polypath_context* context;
  polypath_thresholds thresholds;
  decltype(&polypath_context_create) context_create;
  decltype(&polypath_smallest_split) smallest_split;
  decltype(&polypath_try_copy_async) try_copy_async;
  decltype(&polypath_last_error) last_error;
  decltype(&polypath_last_cuda_result) last_cuda_result;
  decltype(&polypath_memory_exported) memory_exported;
  decltype(&polypath_memory_imported) memory_imported;
  decltype(&polypath_memory_closed) memory_closed;
  decltype(&polypath_counters) counters;
  decltype(&polypath_report) report;
  decltype(&polypath_free) free;
};

/// The engine, made by the first caller. Null when there is none: libpolypath or a GPU is missing, the process
/// is a fork of one that has an engine, this thread is in a call of the engine, or another thread is just
/// making it: that one's callers do not wait.
const Engine* start_engine() noexcept;

/// The engine if it is there already; does not make it.
const Engine* find_engine() noexcept;

/// While it lives, calls that this thread makes are the engine's own and go to the driver.
class InsideEngine {
 public:
  InsideEngine() noexcept { ++depth; }
  ~InsideEngine() { --depth; }
  InsideEngine(const InsideEngine&) = delete;
  InsideEngine& operator=(const InsideEngine&) = delete;

 private:
  friend const Engine* start_engine() noexcept;
  static thread_local int depth;
};

/// For a child: from now on start_engine() gives null.
void forget_engine() noexcept;

}  // namespace polypath::preload
