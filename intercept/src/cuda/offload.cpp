#include "cuda/offload.hpp"

#include <algorithm>

#include "cuda/program_memory.hpp"
#include "gate/process.hpp"

namespace polypath::preload {
namespace {

/// Before there is an engine: no plan splits less.
constexpr std::size_t kMinLarge = 256 * 1024;

/// Fewer copies are never faster by kernels.
constexpr std::size_t kMinBatch = 8;
/// A batch for which an engine is made.
constexpr std::size_t kMinFirstBatch = 1024 * 1024;

constinit std::atomic<std::size_t> min_split[kDirectionCount]{};
/// The same where host memory is on a side that CUDA does not know.
constinit std::atomic<std::size_t> min_pageable[kDirectionCount]{};

void set(Direction direction, std::size_t split, std::size_t pageable) noexcept {
  min_split[index_of(direction)].store(split, std::memory_order_relaxed);
  min_pageable[index_of(direction)].store(pageable, std::memory_order_relaxed);
  const std::size_t bytes = std::min(split, pageable);
  // Rates are taken of copies that are not split as well.
  const std::size_t least = are_statistics_wanted() ? std::min(bytes, kMinRated) : bytes;
  detail::short_way[index_of(direction)].store(least, std::memory_order_relaxed);
}

/// Neither a GPU's memory nor pinned.
bool is_unknown(CUdeviceptr address) noexcept {
  unsigned int type = 0;
  return !ask(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address, &type);
}

bool is_worth_asking(const Copy& copy) noexcept {
  const std::size_t direction = index_of(copy.direction);
  if (copy.bytes >= min_split[direction].load(std::memory_order_relaxed)) return true;
  if (copy.bytes < min_pageable[direction].load(std::memory_order_relaxed)) return false;
  return (copy.direction != Direction::gpu_to_host && is_unknown(copy.src)) ||
         (copy.direction != Direction::host_to_gpu && is_unknown(copy.dst));
}

/// Memory that CUDA does not know is the host's.
bool is_host_memory(CUdeviceptr address) noexcept {
  unsigned int type = CU_MEMORYTYPE_HOST;
  return !ask(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address, &type) || type == CU_MEMORYTYPE_HOST;
}

/// The GPU whose memory it is, as the driver says; -1: the host's, or unknown.
int gpu_of(CUdeviceptr address) noexcept {
  int gpu = -1;
  const bool is_device =
      !is_host_memory(address) && ask(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address, &gpu);
  return is_device ? gpu : -1;
}

/// The GPU of a context; -1: it is none.
int gpu_of(CUcontext context) noexcept {
  if (context == nullptr) return -1;
  const InContext current(context);
  CUdevice gpu = -1;
  return current.is_there() && driver::ctx_get_device(&gpu) == CUDA_SUCCESS ? gpu : -1;
}

/// The context that memory belongs to. Null: none, as of mapped memory and pools, which belong to a
/// GPU, or the driver does not know the memory.
CUcontext owner_of(CUdeviceptr address) noexcept {
  CUcontext owner = nullptr;
  return ask(CU_POINTER_ATTRIBUTE_CONTEXT, address, &owner) ? owner : nullptr;
}

bool lies_in(CUdeviceptr address, CUcontext context) noexcept {
  if (const CUcontext owner = owner_of(address); owner != nullptr) return owner == context;
  const int gpu = gpu_of(address);
  return gpu >= 0 && gpu == gpu_of(context);
}

/// The engine goes by the addresses alone. A program that names other contexts than theirs means
/// something else, or has made a mistake that the driver must report.
bool names_right_contexts(const Copy& copy) noexcept {
  return copy.contexts == nullptr ||
         (lies_in(copy.dst, copy.contexts->dst) && lies_in(copy.src, copy.contexts->src));
}

void share_mappings(const Engine& engine, const Copy& copy) noexcept {
  MappingSharer sharer(engine);
  sharer.share(copy.dst, copy.bytes);
  sharer.share(copy.src, copy.bytes);
}

bool may_touch_untold(const Copy& copy) noexcept {
  return may_be_unregistered(copy.dst, copy.bytes) || may_be_unregistered(copy.src, copy.bytes);
}

/// Makes the context current. An error where a blocking stream of it captures: any work on its
/// default stream would end that capture, and this question does not.
CUresult use_default_stream_of(CUcontext context) noexcept {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult result = driver::ctx_set_current(context);
  return result == CUDA_SUCCESS ? driver::stream_is_capturing(CU_STREAM_LEGACY, &status) : result;
}

/// Lets the default stream of `later` wait for what that of `earlier` was given so far. Leaves
/// another context current.
CUresult order(CUcontext earlier, CUcontext later) noexcept {
  CUevent event = nullptr;
  CUresult result = use_default_stream_of(earlier);
  if (result == CUDA_SUCCESS) result = driver::event_create(&event, CU_EVENT_DISABLE_TIMING);
  if (result == CUDA_SUCCESS) result = driver::event_record(event, CU_STREAM_LEGACY);
  if (result == CUDA_SUCCESS) result = use_default_stream_of(later);
  if (result == CUDA_SUCCESS) result = driver::stream_wait_event(CU_STREAM_LEGACY, event, 0);
  // A wait holds the record that it saw.
  if (event != nullptr) driver::event_destroy(event);
  return result;
}

/// The default stream between GPUs: CUDA lets a copy on it from the memory of one GPU to that of
/// another wait for all that either GPU was given before, and lets all that either is given later
/// wait for the copy (CUDA C++ Programming Guide, "Peer-to-Peer Memory Copy"). The engine knows the
/// order of one stream only; this adds the other GPUs' to it.
class DefaultStreamOrder {
 public:
  /// Before the copy: makes the current context's default stream wait for those of the other
  /// contexts that the two memories belong to. False when that cannot be: the copy has to be the
  /// driver's.
  [[nodiscard]] bool begin(const Copy& copy) noexcept {
    CUcontext current = nullptr;
    CUdevice here = 0;
    if (driver::ctx_get_current(&current) != CUDA_SUCCESS || current == nullptr ||
        driver::ctx_get_device(&here) != CUDA_SUCCESS)
      return false;
    const int to = gpu_of(copy.dst);
    const int from = gpu_of(copy.src);
    if (to < 0 || from < 0 || to == from) return true;
    const PeerContexts* const named = copy.contexts;
    if (to != here) add_other(named != nullptr ? named->dst : context_of(copy.dst, to));
    if (from != here) add_other(named != nullptr ? named->src : context_of(copy.src, from));
    bool is_ordered = true;
    for (std::size_t i = 0; i < count_; ++i)
      is_ordered = is_ordered && order(others_[i], current) == CUDA_SUCCESS;
    return driver::ctx_set_current(current) == CUDA_SUCCESS && is_ordered;
  }

  /// After it: makes them wait for the copy.
  [[nodiscard]] CUresult end() noexcept {
    if (count_ == 0) return CUDA_SUCCESS;
    CUcontext current = nullptr;
    CUresult result = driver::ctx_get_current(&current);
    for (std::size_t i = 0; i < count_ && result == CUDA_SUCCESS; ++i)
      result = order(current, others_[i]);
    const CUresult restored = driver::ctx_set_current(current);
    return result != CUDA_SUCCESS ? result : restored;
  }

 private:
  /// For memory without a context it is the primary one of its GPU; null where that has none, and
  /// so no default stream either.
  static CUcontext context_of(CUdeviceptr address, int gpu) noexcept {
    const CUcontext owner = owner_of(address);
    return owner != nullptr ? owner : PrimaryContext(gpu).get();
  }
  void add_other(CUcontext context) noexcept {
    if (context != nullptr) others_[count_++] = context;
  }

  CUcontext others_[2] = {};
  std::size_t count_ = 0;
};

/// Without one, or before cuInit(), the driver refuses every copy, and says why.
bool is_context_current() noexcept {
  CUdevice gpu = -1;
  return driver::ctx_get_device(&gpu) == CUDA_SUCCESS;
}

CUresult cause_of(const Engine& engine) noexcept {
  const int cause = engine.last_cuda_result();
  return cause != CUDA_SUCCESS ? static_cast<CUresult>(cause) : CUDA_ERROR_UNKNOWN;
}

}  // namespace

void set_noting(bool is_noted) noexcept {
  detail::is_noted.store(is_noted, std::memory_order_relaxed);
}

namespace detail {

constinit std::atomic<bool> is_noted{false};

void tell_engine(const Copy& copy) noexcept {
  const ApiScope engine(ApiScope::Start::no);
  if (!engine) return;
  const CUstream stream = stream_of(copy);
  engine->note_copy(engine->context, reinterpret_cast<void*>(copy.dst),
                    reinterpret_cast<const void*>(copy.src), copy.bytes,
                    stream == CU_STREAM_LEGACY ? nullptr : stream);
}

// Nothing is below zero: the first call of a process takes the long way, which begins with
// init_process().
constinit std::atomic<std::size_t> short_way[kDirectionCount]{};

}  // namespace detail

void set_thresholds(const polypath_thresholds* thresholds) noexcept {
  const polypath_thresholds never{SIZE_MAX, SIZE_MAX, SIZE_MAX, SIZE_MAX, SIZE_MAX};
  const polypath_thresholds& from = thresholds != nullptr ? *thresholds : never;
  set(Direction::gpu_to_gpu, from.gpu_to_gpu, SIZE_MAX);
  set(Direction::host_to_gpu, from.host_to_gpu, from.pageable_to_gpu);
  set(Direction::gpu_to_host, from.gpu_to_host, from.gpu_to_pageable);
  set(Direction::any, std::min({from.gpu_to_gpu, from.host_to_gpu, from.gpu_to_host}),
      std::min(from.pageable_to_gpu, from.gpu_to_pageable));
}

void set_thresholds_before_engine() noexcept {
  const polypath_thresholds large{kMinLarge, kMinLarge, kMinLarge, kMinLarge, kMinLarge};
  set_thresholds(&large);
}

bool offload_copy(const Copy& copy, CUresult* result) noexcept {
  if (!is_worth_asking(copy)) {
    note_native(copy);
    return false;
  }
  if (!is_context_current() || !names_right_contexts(copy)) return false;
  const ApiScope engine(ApiScope::Start::yes);
  // The second time with what the engine has said of sizes.
  if (!engine || !is_worth_asking(copy) || may_touch_untold(copy)) return false;
  DefaultStreamOrder order;
  const bool is_default = stream_of(copy) == CU_STREAM_LEGACY;
  if (is_default && !order.begin(copy)) return false;
  count_offloaded(copy.symbol);
  share_mappings(*engine, copy);
  int issued = 0;
  SequencedCopy turn(stream_of(copy));
  const auto try_copy = turn.follows() ? engine->try_copy_sequenced_async : engine->try_copy_async;
  const polypath_status status = try_copy(engine->context, reinterpret_cast<void*>(copy.dst),
                                          reinterpret_cast<const void*>(copy.src), copy.bytes,
                                          is_default ? nullptr : stream_of(copy), &issued);
  // The driver's own call reports the error, in its own words.
  if (issued == 0) return false;
  // What only helps is no error: the driver's own copy writes the same bytes, and orders itself.
  if (status == POLYPATH_SUCCESS && order.end() != CUDA_SUCCESS) return false;
  count_issued(copy.symbol);
  if (status == POLYPATH_SUCCESS)
    turn.issued();
  else
    note_other(copy.stream);
  *result = status == POLYPATH_SUCCESS ? CUDA_SUCCESS : cause_of(*engine);
  return true;
}

bool offload_batch(const Copy* copies, std::size_t count, bool* issued, CUresult* result) noexcept {
  std::fill_n(issued, count, false);
  if (std::none_of(copies, copies + count, is_worth_asking) || !is_context_current()) return false;
  const ApiScope engine(ApiScope::Start::yes);
  if (!engine) return false;
  const Array<polypath_transfer> group(count);
  const Array<int> taken(count);
  const Array<std::size_t> indices(count);
  if (!group || !taken || !indices) return false;
  std::fill_n(taken.get(), count, 0);
  std::size_t offered = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const Copy& copy = copies[i];
    if (!is_worth_asking(copy) || may_touch_untold(copy)) continue;
    share_mappings(*engine, copy);
    group[offered] = {reinterpret_cast<void*>(copy.dst), reinterpret_cast<const void*>(copy.src),
                      copy.bytes, stream_of(copy)};
    indices[offered++] = i;
    count_offloaded(copy.symbol);
  }
  polypath_status status = POLYPATH_SUCCESS;
  if (offered > 0)
    status = engine->try_group_copy_async(engine->context, group.get(), offered, taken.get());
  bool is_any = false;
  for (std::size_t i = 0; i < offered; ++i) {
    if (taken[i] == 0) continue;
    issued[indices[i]] = is_any = true;
    count_issued(copies[indices[i]].symbol);
  }
  if (is_any) *result = status == POLYPATH_SUCCESS ? CUDA_SUCCESS : cause_of(*engine);
  return is_any;
}

bool may_go_by_kernels(const CopyBatch& batch) noexcept {
  return batch.count >= kMinBatch &&
         (batch.bytes >= kMinFirstBatch || detail::is_noted.load(std::memory_order_relaxed));
}

bool offload_whole_batch(const CopyBatch& batch, CUresult* result) noexcept {
  if (!is_context_current()) return false;
  const ApiScope engine(batch.bytes >= kMinFirstBatch ? ApiScope::Start::yes : ApiScope::Start::no);
  if (!engine) return false;
  for (std::size_t i = 0; i < batch.count; ++i)
    if (may_be_unregistered(batch.dsts[i], batch.sizes[i]) ||
        may_be_unregistered(batch.srcs[i], batch.sizes[i]))
      return false;
  MappingSharer dsts(*engine);
  MappingSharer srcs(*engine);
  for (std::size_t i = 0; i < batch.count; ++i) {
    dsts.share(batch.dsts[i], batch.sizes[i]);
    srcs.share(batch.srcs[i], batch.sizes[i]);
  }
  count_offloaded(batch.symbol);
  int issued = 0;
  // An address of the driver's is as long as a pointer.
  static_assert(sizeof(CUdeviceptr) == sizeof(void*));
  const polypath_status status = engine->try_copy_batch_async(
      engine->context, batch.count, reinterpret_cast<void**>(batch.dsts),
      reinterpret_cast<const void**>(batch.srcs), batch.sizes, batch.stream, &issued);
  // What the engine refuses the driver refuses in its own words.
  if (issued == 0) return false;
  count_issued(batch.symbol);
  *result = status == POLYPATH_SUCCESS ? CUDA_SUCCESS : cause_of(*engine);
  return true;
}

CUresult wait_for(CUstream stream) noexcept {
  // Only what the stream has now: others may give it more that takes long. The thread sleeps or
  // spins as the program has set its context to.
  unsigned flags = 0;
  driver::ctx_get_flags(&flags);
  const bool sleeps = (flags & CU_CTX_SCHED_MASK) == CU_CTX_SCHED_BLOCKING_SYNC;
  CUevent event = nullptr;
  CUresult result =
      driver::event_create(&event, CU_EVENT_DISABLE_TIMING | (sleeps ? CU_EVENT_BLOCKING_SYNC : 0));
  if (result != CUDA_SUCCESS) return driver::stream_synchronize(stream);
  result = driver::event_record(event, stream);
  result = result == CUDA_SUCCESS ? driver::event_synchronize(event)
                                  : driver::stream_synchronize(stream);
  driver::event_destroy(event);
  return result;
}

bool is_waited_for(const Copy& copy) noexcept {
  if (copy.direction == Direction::host_to_gpu || copy.direction == Direction::gpu_to_host)
    return true;
  const auto asks_for_it = [](CUdeviceptr address) {
    unsigned is_set = 0;
    return ask(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address, &is_set) && is_set != 0;
  };
  unsigned flags = 0;
  driver::ctx_get_flags(&flags);
  return is_host_memory(copy.dst) || is_host_memory(copy.src) || asks_for_it(copy.dst) ||
         asks_for_it(copy.src) || (flags & CU_CTX_SYNC_MEMOPS) != 0;
}

}  // namespace polypath::preload
