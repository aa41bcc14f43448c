#include "cuda/sequences.hpp"

#include <pthread.h>

#include "cuda/engine.hpp"
#include "cuda/intercepted.hpp"
#include "gate/process.hpp"

namespace polypath::preload {
namespace {

constexpr std::size_t kStreams = 64;
/// In place of a stream that was destroyed: others may follow it. No stream has that handle.
const CUstream kGone = CU_STREAM_LEGACY;

}  // namespace

namespace detail {

struct TrackedStream {
  std::atomic<CUstream> stream;
  std::atomic<std::uint64_t> others;  ///< noted here so far; never less, also for another stream
  std::atomic<std::uint64_t> last;    ///< `others` before the engine's last transfer; 0: none
  const void* maker;                  ///< the call that made the stream
  const char* function;               ///< that was called there
};

constinit std::atomic<int> remembered_streams{0};

}  // namespace detail

namespace {

using detail::remembered_streams;
using detail::TrackedStream;

/// Each stream at or after the place of its hash, with no empty place before it.
constinit TrackedStream streams[kStreams]{};
/// Guards which streams there are; what is noted of them is not.
constinit pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

TrackedStream& place(CUstream stream, std::size_t offset) noexcept {
  const std::size_t hash =
      (reinterpret_cast<std::uintptr_t>(stream) * std::uintptr_t{0x9E3779B97F4A7C15U}) >> 58U;
  return streams[(hash + offset) % kStreams];
}

// With the lock held:

void renew(TrackedStream& entry, CUstream stream) noexcept {
  entry.stream.store(stream);
  entry.others.fetch_add(1);
  entry.last.store(0);
}

void forget(TrackedStream& entry) noexcept {
  renew(entry, kGone);
  if (remembered_streams.fetch_sub(1) > 1) return;
  for (TrackedStream& other : streams) other.stream.store(nullptr);
}

void forget(CUstream stream) noexcept {
  if (TrackedStream* const known = detail::find_remembered(stream)) forget(*known);
}

void remember(CUstream stream, const void* maker, const char* function) noexcept {
  for (std::size_t i = 0; i < kStreams; ++i) {
    TrackedStream& entry = place(stream, i);
    const CUstream there = entry.stream.load();
    if (there != nullptr && there != kGone) continue;
    entry.maker = maker;
    entry.function = function;
    renew(entry, stream);
    remembered_streams.fetch_add(1);
    return;
  }
}

// Without:

/// After a stream was made: a handle may be one that was used before.
void track_stream(CUstream stream, unsigned flags, const void* maker,
                  const char* function) noexcept {
  // Others wait for the default stream, which the engine's streams do not.
  const bool is_own = (flags & CU_STREAM_NON_BLOCKING) != 0 && is_transparent(maker, function);
  if (!is_own && remembered_streams.load() == 0) return;
  init_process();
  {
    const Lock lock(mutex);
    forget(stream);
    if (is_own) remember(stream, maker, function);
  }
  // A lookup meanwhile has seen no stream that it ends.
  if (!is_own || is_transparent(maker, function)) return;
  const Lock lock(mutex);
  forget(stream);
}

}  // namespace

namespace detail {

TrackedStream* find_remembered(CUstream stream) noexcept {
  if (stream == nullptr || stream == kGone) return nullptr;
  for (std::size_t i = 0; i < kStreams; ++i) {
    TrackedStream& entry = place(stream, i);
    const CUstream there = entry.stream.load(std::memory_order_acquire);
    if (there == stream) return &entry;
    if (there == nullptr) return nullptr;
  }
  return nullptr;
}

void note(CUstream stream) noexcept {
  if (TrackedStream* const known = find_remembered(stream)) known->others.fetch_add(1);
}

}  // namespace detail

SequencedCopy::SequencedCopy(CUstream stream) noexcept {
  if (remembered_streams.load(std::memory_order_relaxed) == 0) return;
  stream_ = detail::find_remembered(stream);
  if (stream_ == nullptr) return;
  others_ = stream_->others.load();
  follows_ = stream_->last.load() == others_;
}

void SequencedCopy::issued() noexcept {
  if (stream_ != nullptr) stream_->last.store(others_);
}

void note_lookup(const char* name, const void* caller) noexcept {
  if (!add_lookup(name, caller) || remembered_streams.load() == 0) return;
  // Not under the lock: the loader has locks of its own.
  for (TrackedStream& entry : streams) {
    const void* maker = nullptr;
    const char* function = nullptr;
    {
      const Lock lock(mutex);
      if (entry.stream.load() == nullptr || entry.stream.load() == kGone) continue;
      maker = entry.maker;
      function = entry.function;
    }
    if (is_transparent(maker, function)) continue;
    const Lock lock(mutex);
    if (entry.stream.load() != nullptr && entry.stream.load() != kGone && entry.maker == maker)
      forget(entry);
  }
}

void forget_streams() noexcept {
  const Lock lock(mutex);
  for (TrackedStream& entry : streams) renew(entry, nullptr);
  remembered_streams.store(0);
}

void forget_streams_in_child() noexcept {
  mutex = PTHREAD_MUTEX_INITIALIZER;
  forget_streams();
}

}  // namespace polypath::preload

using namespace polypath::preload;

POLYPATH_INTERCEPTOR(cuStreamCreate)(CUstream* stream, unsigned int flags) {
  const CUresult result = call_driver(Symbol::cuStreamCreate, stream, flags);
  if (result == CUDA_SUCCESS)
    track_stream(*stream, flags, __builtin_return_address(0), "cuStreamCreate");
  return result;
}

POLYPATH_INTERCEPTOR(cuStreamCreateWithPriority)
(CUstream* stream, unsigned int flags, int priority) {
  const CUresult result = call_driver(Symbol::cuStreamCreateWithPriority, stream, flags, priority);
  if (result == CUDA_SUCCESS)
    track_stream(*stream, flags, __builtin_return_address(0), "cuStreamCreateWithPriority");
  return result;
}

POLYPATH_INTERCEPTOR(cuStreamDestroy_v2)(CUstream stream) {
  if (remembered_streams.load() != 0) {
    const Lock lock(mutex);
    forget(stream);
  }
  return call_driver(Symbol::cuStreamDestroy_v2, stream);
}

POLYPATH_INTERCEPTOR(cuStreamWaitEvent)(CUstream stream, CUevent event, unsigned int flags) {
  const CUresult result = call_driver(Symbol::cuStreamWaitEvent, stream, event, flags);
  note_other(stream);
  return result;
}

POLYPATH_INTERCEPTOR(cuStreamAddCallback)
(CUstream stream, CUstreamCallback callback, void* user, unsigned int flags) {
  const CUresult result = call_driver(Symbol::cuStreamAddCallback, stream, callback, user, flags);
  note_other(stream);
  return result;
}
