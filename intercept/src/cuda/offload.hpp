// One copy that a program has asked the driver for: it is offloaded to the engine where that may
// split it. Otherwise the driver executes it.
//
// What a copy that is never split costs on top of the driver's call is a comparison of its size,
// and two additions where statistics are wanted.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "cuda/copy.hpp"
#include "cuda/engine.hpp"
#include "cuda/intercepted.hpp"
#include "cuda/sequences.hpp"
#include "cuda/statistics.hpp"
#include "polypath/polypath.h"

namespace polypath::preload {

/// The sizes from which the engine is asked. Null: never.
void set_thresholds(const polypath_thresholds* thresholds) noexcept;
/// What they are until there is an engine: the sizes for which one is made.
void set_thresholds_before_engine() noexcept;

namespace detail {
/// By direction: sizes below it take the short way.
extern std::atomic<std::size_t> short_way[kDirectionCount];
}  // namespace detail

/// Whether native copies are told to the engine: there is one.
void set_noting(bool is_noted) noexcept;

namespace detail {
extern std::atomic<bool> is_noted;
void tell_engine(const Copy& copy) noexcept;
}  // namespace detail

/// Tells the engine of a copy that the driver carries and that it was not offered: what it occupies
/// counts as load. Nothing for copies that are small, or of GPUs alone.
inline void note_native(const Copy& copy) noexcept {
  constexpr std::size_t kMinNoted = 16 * 1024;
  if (copy.bytes >= kMinNoted && copy.direction != Direction::gpu_to_gpu &&
      detail::is_noted.load(std::memory_order_relaxed))
    detail::tell_engine(copy);
}

/// True when the copy is the driver's without a question.
inline bool is_below_threshold(const Copy& copy) noexcept {
  return copy.bytes < detail::short_way[index_of(copy.direction)].load(std::memory_order_relaxed);
}

/// Offers the copy to the engine. True when that took it: `*result` is then the answer to the
/// program. After init_process().
bool offload_copy(const Copy& copy, CUresult* result) noexcept;

/// Offers copies on one stream, not the legacy one, that have no order among each other, together.
/// `issued` says of each whether the engine took it; false when it took none. Otherwise `*result`
/// is the answer for those that it took.
bool offload_batch(const Copy* copies, std::size_t count, bool* issued, CUresult* result) noexcept;

/// A batch of copies as a whole, which have no order among each other.
struct CopyBatch {
  Symbol symbol;
  CUdeviceptr* dsts;
  CUdeviceptr* srcs;
  std::size_t* sizes;
  std::size_t count;
  CUstream stream;    ///< not the legacy one
  std::size_t bytes;  ///< of all copies
};

/// Whether kernels may copy the batch faster than the driver, as far as its size says.
bool may_go_by_kernels(const CopyBatch& batch) noexcept;

/// Offers it to the engine with copies of any size. True when that took all of it:
/// `*result` is then the answer to the program. After init_process().
bool offload_whole_batch(const CopyBatch& batch, CUresult* result) noexcept;

/// Waits as a copy does that the calling thread waits for: until the stream has done what it was
/// given so far.
CUresult wait_for(CUstream stream) noexcept;

/// Whether such a copy is waited for: it has host memory on a side, or memory with
/// CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, or its context has CU_CTX_SYNC_MEMOPS. Others return before
/// they are done (CUDA: "API synchronization behavior").
bool is_waited_for(const Copy& copy) noexcept;

/// Calls the driver for a copy on a stream that is not offered; `counted`: its bytes in the
/// statistics.
template <typename Native>
CUresult leave_to_driver(const Copy& copy, std::size_t counted, Native&& native) noexcept {
  init_process();
  count_call(copy.symbol, counted);
  const CUresult result = native();
  note_other(copy.stream);
  if (result == CUDA_SUCCESS) note_native(copy);
  return result;
}

/// Copies on a stream; `native()` is the driver's own call with the program's arguments.
template <typename Native>
CUresult carry(const Copy& copy, Native&& native) noexcept {
  if (is_below_threshold(copy)) [[likely]] {
    count_call(copy.symbol, copy.bytes);
    const CUresult result = native();
    note_other(copy.stream);
    if (result == CUDA_SUCCESS) note_native(copy);
    return result;
  }
  init_process();
  count_call(copy.symbol, copy.bytes);
  StreamSample sample(copy);
  CUresult result = CUDA_SUCCESS;
  const bool is_issued = offload_copy(copy, &result);
  if (!is_issued) {
    result = native();
    note_other(copy.stream);
  }
  sample.end(result, is_issued);
  return result;
}

/// Copies that the calling thread waits for, on the default stream of `copy.symbol`.
template <typename Native>
CUresult dispatch_copy_and_wait(const Copy& copy, Native&& native) noexcept {
  if (is_below_threshold(copy)) [[likely]] {
    count_call(copy.symbol, copy.bytes);
    // Others are told before it: when it returns, it is over.
    note_native(copy);
    return native();
  }
  init_process();
  count_call(copy.symbol, copy.bytes);
  WaitSample sample(copy);
  CUresult result = CUDA_SUCCESS;
  const bool is_issued = offload_copy(copy, &result);
  if (!is_issued) result = native();
  if (result != CUDA_SUCCESS || !is_waited_for(copy)) return result;
  if (is_issued) result = wait_for(stream_of(copy));
  sample.end(result, is_issued);
  return result;
}

}  // namespace polypath::preload
