#include "cuda/statistics.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <ctime>

#include "cuda/intercepted.hpp"

namespace polypath::preload {
namespace {

constexpr std::size_t kShards = 16;
constexpr std::size_t kImportEvents = 4;

struct alignas(64) Shard {
  detail::SharedCounts symbols[kSymbolCount];
};

constinit Shard shards[kShards]{};
constinit std::atomic<std::uint64_t> imports[kImportEvents]{};

constexpr std::size_t kKept = 128;

struct Samples {
  std::atomic<std::uint64_t> count;
  std::atomic<float> gbps[kKept];
};

constinit Samples samples[kDirectionCount][2][kSizeClasses]{};

std::size_t class_of(std::size_t bytes) noexcept {
  const auto above = static_cast<std::size_t>(std::bit_width(bytes / kMinRated));
  return std::min(above == 0 ? 0 : above - 1, kSizeClasses - 1);
}

std::uint64_t now_ns() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

void forget_rates() noexcept {
  for (auto& by_issuer : samples)
    for (auto& by_size : by_issuer)
      for (Samples& entry : by_size) entry.count.store(0, std::memory_order_relaxed);
}

/// Threads take the shards in turn.
Shard& own_shard() noexcept {
  static constinit std::atomic<std::size_t> threads{0};
  static constinit thread_local Shard* own = nullptr;
  if (own == nullptr) own = &shards[threads.fetch_add(1, std::memory_order_relaxed) % kShards];
  return *own;
}

}  // namespace

namespace detail {

constinit std::atomic<bool> statistics_wanted{false};

SharedCounts& shared_counts(Symbol symbol) noexcept {
  return own_shard().symbols[index_of(symbol)];
}

}  // namespace detail

CallCounts calls_of(Symbol symbol) noexcept {
  CallCounts sum;
  for (const Shard& shard : shards) {
    const detail::SharedCounts& counts = shard.symbols[index_of(symbol)];
    sum.calls += counts.calls.load(std::memory_order_relaxed);
    sum.bytes += counts.bytes.load(std::memory_order_relaxed);
    sum.offloaded += counts.offloaded.load(std::memory_order_relaxed);
    sum.issued += counts.issued.load(std::memory_order_relaxed);
  }
  return sum;
}

std::uint64_t count_of(ImportEvent event) noexcept {
  return imports[static_cast<std::size_t>(event)].load(std::memory_order_relaxed);
}

void count(ImportEvent event) noexcept {
  imports[static_cast<std::size_t>(event)].fetch_add(1, std::memory_order_relaxed);
}

void want_statistics() noexcept {
  detail::statistics_wanted.store(true, std::memory_order_relaxed);
}

void forget_statistics() noexcept {
  for (Shard& shard : shards) {
    for (detail::SharedCounts& counts : shard.symbols) {
      counts.calls.store(0, std::memory_order_relaxed);
      counts.bytes.store(0, std::memory_order_relaxed);
      counts.offloaded.store(0, std::memory_order_relaxed);
      counts.issued.store(0, std::memory_order_relaxed);
    }
  }
  for (std::atomic<std::uint64_t>& count : imports) count.store(0, std::memory_order_relaxed);
  forget_rates();
}

Rate rate_of(Direction direction, std::size_t size_class, bool is_issued) noexcept {
  const Samples& from = samples[index_of(direction)][is_issued ? 1 : 0][size_class];
  Rate rate{kMinRated << size_class, is_issued, from.count.load(std::memory_order_relaxed), 0};
  const std::size_t kept = std::min<std::size_t>(rate.count, kKept);
  if (kept == 0) return rate;
  float values[kKept];
  for (std::size_t i = 0; i < kept; ++i) values[i] = from.gbps[i].load(std::memory_order_relaxed);
  std::nth_element(values, values + kept / 2, values + kept);
  rate.gbps = static_cast<double>(values[kept / 2]);
  return rate;
}

void add_rate(Direction direction, std::size_t bytes, bool is_issued,
              double microseconds) noexcept {
  if (microseconds <= 0) return;
  Samples& to = samples[index_of(direction)][is_issued ? 1 : 0][class_of(bytes)];
  const std::uint64_t index = to.count.fetch_add(1, std::memory_order_relaxed);
  const auto gbps = static_cast<float>(static_cast<double>(bytes) / microseconds / 1e3);
  to.gbps[index % kKept].store(gbps, std::memory_order_relaxed);
}

WaitSample::WaitSample(const Copy& copy) noexcept : copy_(copy) {
  if (are_statistics_wanted() && copy.bytes >= kMinRated) begin_ns_ = now_ns();
}

void WaitSample::end(CUresult result, bool is_issued) noexcept {
  if (begin_ns_ == 0 || result != CUDA_SUCCESS) return;
  add_rate(copy_.direction, copy_.bytes, is_issued,
           static_cast<double>(now_ns() - begin_ns_) / 1e3);
}

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
constexpr std::size_t kMaxAsked = 4;
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

void release(EventPair& pair, PairState as) noexcept {
  pair.state.store(as, std::memory_order_release);
}

/// The id of the stream's context, if that is current: only then may its events be used. Ids,
/// unlike handles, are never used again, so events of a context that is gone are never touched.
bool find_context(CUstream stream, std::uint64_t* id) noexcept {
  CUcontext current = nullptr;
  CUcontext of_stream = nullptr;
  unsigned long long number = 0;
  if (driver::ctx_get_current(&current) != CUDA_SUCCESS || current == nullptr ||
      driver::stream_get_ctx(stream, &of_stream) != CUDA_SUCCESS || of_stream != current ||
      driver::ctx_get_id(current, &number) != CUDA_SUCCESS)
    return false;
  *id = number;
  return true;
}

/// Reads pairs of the context that are complete.
void read_some(std::uint64_t context_id) noexcept {
  static constinit std::atomic<std::size_t> next{0};
  std::size_t asked = 0;
  const std::size_t first = next.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < kPairs && asked < kMaxAsked; ++i) {
    EventPair& pair = pairs[(first + i) % kPairs];
    if (!change(pair, PairState::pending, PairState::taken)) continue;
    if (pair.context_id != context_id) {
      release(pair, PairState::pending);
      continue;
    }
    ++asked;
    next.store((first + i + 1) % kPairs, std::memory_order_relaxed);
    const CUresult result = driver::event_query(pair.end);
    float milliseconds = 0;
    if (result == CUDA_SUCCESS &&
        driver::event_elapsed_time(&milliseconds, pair.begin, pair.end) == CUDA_SUCCESS)
      add_rate(pair.direction, pair.bytes, pair.is_issued, static_cast<double>(milliseconds) * 1e3);
    release(pair, result == CUDA_ERROR_NOT_READY ? PairState::pending : PairState::free);
  }
}

/// A pair with events of the context, taken; null when all are in use.
EventPair* take_pair(std::uint64_t context_id) noexcept {
  for (EventPair& pair : pairs) {
    if (!change(pair, PairState::free, PairState::taken)) continue;
    if (pair.context_id == context_id) return &pair;
    release(pair, PairState::free);
  }
  for (EventPair& pair : pairs) {
    if (!change(pair, PairState::unused, PairState::taken)) continue;
    pair.context_id = context_id;
    if (driver::event_create(&pair.begin, CU_EVENT_DEFAULT) == CUDA_SUCCESS &&
        driver::event_create(&pair.end, CU_EVENT_DEFAULT) == CUDA_SUCCESS)
      return &pair;
    release(pair, PairState::unused);
    return nullptr;
  }
  return nullptr;
}

}  // namespace

StreamSample::StreamSample(const Copy& copy) noexcept : copy_(copy) {
  if (!are_statistics_wanted() || copy.bytes < kMinRated || !is_turn()) return;
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
    release(*pair, PairState::free);
}

void StreamSample::end(CUresult result, bool is_issued) noexcept {
  if (pair_ == nullptr) return;
  pair_->is_issued = is_issued;
  const bool is_recorded =
      result == CUDA_SUCCESS && driver::event_record(pair_->end, stream_of(copy_)) == CUDA_SUCCESS;
  release(*pair_, is_recorded ? PairState::pending : PairState::free);
}

}  // namespace polypath::preload
