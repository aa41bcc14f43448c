#include "preload/hand_over.hpp"

#include <algorithm>

#include "preload/default_stream.hpp"
#include "preload/driver_calls.hpp"
#include "preload/engine.hpp"

namespace polypath::preload {
namespace {

/// Before there is an engine: nobody splits less.
constexpr std::size_t kLeastLarge = 256 * 1024;

constinit std::atomic<std::size_t> least_split[kDirectionCount]{};

void set(Direction direction, std::size_t bytes) noexcept {
  least_split[index_of(direction)].store(bytes, std::memory_order_relaxed);
  // Rates are taken of copies that are not split as well.
  const std::size_t least = are_statistics_wanted() ? std::min(bytes, kLeastRated) : bytes;
  detail::short_way[index_of(direction)].store(least, std::memory_order_relaxed);
}

bool is_worth_asking(const Copy& copy) noexcept {
  return copy.bytes >= least_split[index_of(copy.direction)].load(std::memory_order_relaxed);
}

bool lies_in(CUdeviceptr address, CUcontext context) noexcept {
  CUcontext found = nullptr;
  return driver::pointer_get_attribute(static_cast<void*>(&found), CU_POINTER_ATTRIBUTE_CONTEXT,
                                       address) == CUDA_SUCCESS &&
         found != nullptr && found == context;
}

/// The engine goes by the addresses alone. A program that names other contexts than theirs means something
/// else, or has made a mistake that it is to be told of.
bool names_right_contexts(const Copy& copy) noexcept {
  return copy.contexts == nullptr ||
         (lies_in(copy.dst, copy.contexts->dst) && lies_in(copy.src, copy.contexts->src));
}

}  // namespace

namespace detail {

// Nothing is below zero: the first call of a process takes the long way, which begins with begin_process().
constinit std::atomic<std::size_t> short_way[kDirectionCount]{};

}  // namespace detail

void set_thresholds(const polypath_thresholds* thresholds) noexcept {
  const polypath_thresholds never{SIZE_MAX, SIZE_MAX, SIZE_MAX};
  const polypath_thresholds& from = thresholds != nullptr ? *thresholds : never;
  set(Direction::gpu_to_gpu, from.gpu_to_gpu);
  set(Direction::host_to_gpu, from.host_to_gpu);
  set(Direction::gpu_to_host, from.gpu_to_host);
  set(Direction::any, std::min({from.gpu_to_gpu, from.host_to_gpu, from.gpu_to_host}));
}

void set_thresholds_before_engine() noexcept {
  const polypath_thresholds large{kLeastLarge, kLeastLarge, kLeastLarge};
  set_thresholds(&large);
}

bool hand_over(const Copy& copy, CUresult* result) noexcept {
  if (!is_worth_asking(copy) || !names_right_contexts(copy)) return false;
  const Engine* const engine = start_engine();
  // The second time with what the engine has said of sizes.
  if (engine == nullptr || !is_worth_asking(copy)) return false;
  DefaultStreamOrder order;
  const bool is_default = stream_of(copy) == CU_STREAM_LEGACY;
  if (is_default && !order.begin(copy)) return false;
  count_handed_over(copy.symbol);
  const InsideEngine inside;
  int issued = 0;
  const polypath_status status = engine->try_copy_async(
      engine->context, reinterpret_cast<void*>(copy.dst), reinterpret_cast<const void*>(copy.src),
      copy.bytes, is_default ? nullptr : stream_of(copy), &issued);
  // Whatever the engine did not like about it, the driver's own call says it in its own words.
  if (issued == 0) return false;
  count_issued(copy.symbol);
  if (status == POLYPATH_SUCCESS) {
    *result = order.end();
  } else {
    const int cause = engine->last_cuda_result();
    *result = cause != CUDA_SUCCESS ? static_cast<CUresult>(cause) : CUDA_ERROR_UNKNOWN;
  }
  return true;
}

}  // namespace polypath::preload
