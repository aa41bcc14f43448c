#include <atomic>

#include "preload/driver_calls.hpp"
#include "preload/rates.hpp"
#include "preload/relaxed_capture.hpp"
#include "preload/statistics.hpp"

namespace polypath::preload {

enum class PairState : std::uint8_t {
  unused,   // has no events yet
  free,     // has events of a context
  taken,    // one thread works with it
  pending,  // both events are recorded
};

struct EventPair {
  std::atomic<PairState> state;
  std::uint64_t context_id;  ///< of the context that the events belong to
  CUevent begin;
  CUevent end;
  Direction direction;
  std::size_t bytes;
  bool is_issued;
};

namespace {

constexpr std::size_t kPairs = 64;
/// A program's call asks no more events than this.
constexpr std::size_t kMostAsked = 4;
/// The first copies of a thread are all sampled, later ones now and then.
constexpr unsigned kAllSampled = 32;
constexpr unsigned kSampledOneIn = 4;

constinit EventPair pairs[kPairs]{};

bool is_turn() noexcept {
  static constinit thread_local unsigned copies = 0;
  const unsigned turn = copies++;
  return turn < kAllSampled || turn % kSampledOneIn == 0;
}

bool change(EventPair& pair, PairState from, PairState to) noexcept {
  return pair.state.compare_exchange_strong(from, to, std::memory_order_acq_rel);
}

void give_back(EventPair& pair, PairState as) noexcept {
  pair.state.store(as, std::memory_order_release);
}

/// The id of the stream's context, if that is current: only then may its events be used. Ids, unlike handles,
/// are never used again, so events of a context that is gone are never touched.
bool find_context(CUstream stream, std::uint64_t* id) noexcept {
  CUcontext current = nullptr;
  CUcontext of_stream = nullptr;
  unsigned long long found = 0;
  if (driver::ctx_get_current(&current) != CUDA_SUCCESS || current == nullptr ||
      driver::stream_get_ctx(stream, &of_stream) != CUDA_SUCCESS || of_stream != current ||
      driver::ctx_get_id(current, &found) != CUDA_SUCCESS)
    return false;
  *id = found;
  return true;
}

/// Reads pairs of the context that are complete.
void read_some(std::uint64_t context_id) noexcept {
  static constinit std::atomic<std::size_t> next{0};
  std::size_t asked = 0;
  const std::size_t first = next.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < kPairs && asked < kMostAsked; ++i) {
    EventPair& pair = pairs[(first + i) % kPairs];
    if (!change(pair, PairState::pending, PairState::taken)) continue;
    if (pair.context_id != context_id) {
      give_back(pair, PairState::pending);
      continue;
    }
    ++asked;
    next.store((first + i + 1) % kPairs, std::memory_order_relaxed);
    const CUresult result = driver::event_query(pair.end);
    float milliseconds = 0;
    if (result == CUDA_SUCCESS &&
        driver::event_elapsed_time(&milliseconds, pair.begin, pair.end) == CUDA_SUCCESS)
      add_rate(pair.direction, pair.bytes, pair.is_issued, static_cast<double>(milliseconds) * 1e3);
    give_back(pair, result == CUDA_ERROR_NOT_READY ? PairState::pending : PairState::free);
  }
}

/// A pair with events of the context, taken; null when all are in use.
EventPair* take_pair(std::uint64_t context_id) noexcept {
  for (EventPair& pair : pairs) {
    if (!change(pair, PairState::free, PairState::taken)) continue;
    if (pair.context_id == context_id) return &pair;
    give_back(pair, PairState::free);
  }
  for (EventPair& pair : pairs) {
    if (!change(pair, PairState::unused, PairState::taken)) continue;
    pair.context_id = context_id;
    if (driver::event_create(&pair.begin, CU_EVENT_DEFAULT) == CUDA_SUCCESS &&
        driver::event_create(&pair.end, CU_EVENT_DEFAULT) == CUDA_SUCCESS)
      return &pair;
    give_back(pair, PairState::unused);
    return nullptr;
  }
  return nullptr;
}

}  // namespace

StreamSample::StreamSample(const Copy& copy) noexcept : copy_(copy) {
  if (!are_statistics_wanted() || copy.bytes < kLeastRated || !is_turn()) return;
  const CUstream stream = stream_of(copy);
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  std::uint64_t context_id = 0;
  const RelaxedCapture relaxed;
  if (driver::stream_is_capturing(stream, &capture) != CUDA_SUCCESS ||
      capture != CU_STREAM_CAPTURE_STATUS_NONE || !find_context(stream, &context_id))
    return;
  read_some(context_id);
  EventPair* const pair = take_pair(context_id);
  if (pair == nullptr) return;
  pair->direction = copy.direction;
  pair->bytes = copy.bytes;
  if (driver::event_record(pair->begin, stream) == CUDA_SUCCESS)
    pair_ = pair;
  else
    give_back(*pair, PairState::free);
}

void StreamSample::end(CUresult result, bool is_issued) noexcept {
  if (pair_ == nullptr) return;
  pair_->is_issued = is_issued;
  const bool is_recorded =
      result == CUDA_SUCCESS && driver::event_record(pair_->end, stream_of(copy_)) == CUDA_SUCCESS;
  give_back(*pair_, is_recorded ? PairState::pending : PairState::free);
}

}  // namespace polypath::preload
