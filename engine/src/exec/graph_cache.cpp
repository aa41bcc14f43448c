#include "exec/graph_cache.hpp"

#include <algorithm>

#include "base/log.hpp"

namespace polypath {
namespace {

constexpr std::size_t kMaxRetired = 64;
constexpr std::size_t kMaxRefused = 256;
/// So many graphs go by streams after one could not be built, before the next is tried.
constexpr int kPauseAfterOutOfMemory = 256;
constexpr int kPauseAfterFailure = 16;
/// So many graphs are built before a cache that shrank, because memory ran out, may grow again.
constexpr int kBuildsUntilGrowth = 1024;

/// What the driver will say of the same graph the next time as well.
bool is_final(int code) {
  return code == CUDA_ERROR_INVALID_VALUE || code == CUDA_ERROR_NOT_SUPPORTED;
}

bool same_schedule(const std::shared_ptr<const TransferSchedule>& a,
                   const std::shared_ptr<const TransferSchedule>& b) {
  return a == b || *a == *b;
}

bool same_shape(const CachedGraph& graph, const GraphRequest& request) {
  return graph.gpu == request.gpu && same_schedule(graph.schedule, request.schedule);
}

bool same_buffers(const CachedGraph& graph, const GraphRequest& request) {
  return graph.dst_buffer == request.dst_buffer && graph.src_buffer == request.src_buffer;
}

}  // namespace

GraphCache::GraphCache(std::shared_ptr<const CudaDriver> driver, int capacity)
    : driver_(std::move(driver)),
      capacity_(static_cast<std::size_t>(capacity)),
      limit_(capacity_) {}

GraphCache::~GraphCache() = default;

// ---- which graph -------------------------------------------------------------------------------

bool GraphCache::idle(CachedGraph& graph) const {
  if (graph.end == nullptr) return true;
  if (!graph.end->has_completed(*driver_)) return false;
  graph.end = nullptr;
  graph.last = nullptr;
  return true;
}

GraphCache::Match GraphCache::find(const GraphRequest& request, const TransferState& ticket) {
  Match result;
  const auto [begin, end] = by_shape_.equal_range(request.schedule->hash);
  for (auto at = begin; at != end; ++at) {
    CachedGraph& graph = **at->second;
    if (graph.taken || !same_shape(graph, request) || graph.graph->places() != request.places)
      continue;
    const bool is_idle = idle(graph);
    if (!same_buffers(graph, request)) {
      if (is_idle) result.stale = &graph;
    } else if (is_idle || graph.last->caller() == ticket.caller()) {
      result.exact = &graph;
      return result;
    } else if (graph.last->allows(ticket, *driver_)) {
      result.running = &graph;
    }
  }
  return result;
}

CachedGraph* GraphCache::oldest_idle(const GraphRequest& request) {
  for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry)
    if (!(*entry)->taken && same_shape(**entry, request) && idle(**entry)) return entry->get();
  return nullptr;
}

CachedGraph* GraphCache::acquire(const GraphRequest& request, const TransferState& ticket) {
  Entries out;  // destroyed after the lock
  std::unique_lock lock(mutex_);
  for (auto at = retired_.begin(); at != retired_.end();) {
    const auto current = at++;
    if (idle(**current)) out.splice(out.end(), retired_, current);
  }
  Match result = find(request, ticket);
  if (result.exact != nullptr) {
    ++counts_.hits;
    return take(*result.exact);
  }
  const bool builds = may_build(request);
  CachedGraph* other = result.stale;
  if (other == nullptr && !(builds && has_room())) other = oldest_idle(request);
  if (other != nullptr) {
    take(*other);
    lock.unlock();
    if (patch(*other, request)) return other;
    lock.lock();
  }
  if (!builds) {
    if (pause_ > 0) --pause_;
    ++counts_.failed;
  } else if (!has_room() && (capacity_ == 0 || !evict_one(out))) {
    ++counts_.busy;
  } else {
    for (;;) {
      CachedGraph& graph = *add(request);
      lock.unlock();
      out.clear();
      int failure = 0;
      if (build(graph, request, failure)) return &graph;
      lock.lock();
      entries_.erase(forget(graph));
      if (failure == CUDA_ERROR_OUT_OF_MEMORY && evict_one(out)) {
        limit_ = entries_.size() + 1;
        builds_since_shrunk_ = 0;
        continue;
      }
      remember_failure(request, failure);
      break;
    }
  }
  // The lock was open meanwhile.
  result = find(request, ticket);
  CachedGraph* const last = result.exact != nullptr ? result.exact : result.running;
  if (last == nullptr) return nullptr;
  ++counts_.hits;
  return take(*last);
}

CachedGraph* GraphCache::take(CachedGraph& graph) {
  graph.taken = true;
  const auto [begin, end] = by_shape_.equal_range(graph.schedule->hash);
  for (auto at = begin; at != end; ++at)
    if (at->second->get() == &graph) entries_.splice(entries_.begin(), entries_, at->second);
  return &graph;
}

bool GraphCache::patch(CachedGraph& graph, const GraphRequest& request) {
  std::size_t patched = 0;
  try {
    patched = graph.graph->patch(request.places, !same_buffers(graph, request));
  } catch (const DriverError& error) {
    log_info("a graph could not be given other addresses: {}", error.what());
    give_up(graph);
    return false;
  }
  graph.dst_buffer = request.dst_buffer;
  graph.src_buffer = request.src_buffer;
  const std::lock_guard lock(mutex_);
  counts_.patched_nodes += patched;
  ++counts_.patches;
  return true;
}

// ---- another graph -----------------------------------------------------------------------------

bool GraphCache::may_build(const GraphRequest& request) const {
  return pause_ == 0 && std::ranges::none_of(refused_, [&](const auto& schedule) {
           return same_schedule(schedule, request.schedule);
         });
}

bool GraphCache::has_room() const {
  return capacity_ == 0 ? retired_.size() < kMaxRetired : entries_.size() < limit_;
}

CachedGraph* GraphCache::add(const GraphRequest& request) {
  Entries copies;
  CachedGraph& graph = *copies.emplace_back(std::make_unique<CachedGraph>());
  graph.schedule = request.schedule;
  graph.gpu = request.gpu;
  graph.dst_buffer = request.dst_buffer;
  graph.src_buffer = request.src_buffer;
  graph.taken = true;
  by_shape_.emplace(request.schedule->hash, copies.begin());
  entries_.splice(entries_.begin(), copies);
  return &graph;
}

bool GraphCache::build(CachedGraph& graph, const GraphRequest& request, int& failure) {
  try {
    graph.graph.emplace(*driver_, *graph.schedule, request.places);
  } catch (const DriverError& error) {
    log_info("no graph could be built: {}", error.what());
    failure = error.code();
    return false;
  } catch (...) {
    give_up(graph);
    throw;
  }
  const std::lock_guard lock(mutex_);
  ++counts_.builds;
  if (limit_ < capacity_ && ++builds_since_shrunk_ >= kBuildsUntilGrowth) limit_ = capacity_;
  return true;
}

void GraphCache::remember_failure(const GraphRequest& request, int code) {
  ++counts_.failed;
  if (code == CUDA_ERROR_OUT_OF_MEMORY) {
    pause_ = kPauseAfterOutOfMemory;
  } else if (!is_final(code)) {
    pause_ = kPauseAfterFailure;
  } else if (refused_.size() < kMaxRefused) {
    refused_.push_back(request.schedule);
  }
}

bool GraphCache::evict_one(Entries& out) {
  for (auto entry = entries_.end(); entry != entries_.begin();) {
    CachedGraph& graph = **--entry;
    if (graph.taken || !idle(graph)) continue;
    const auto place = forget(graph);
    out.splice(out.end(), entries_, place);
    ++counts_.evictions;
    return true;
  }
  return false;
}

// ---- what came of it ---------------------------------------------------------------------------

void GraphCache::launched(CachedGraph& graph, std::shared_ptr<TransferState> ticket,
                          std::shared_ptr<PooledEvent> end) {
  const std::lock_guard lock(mutex_);
  ++counts_.launches;
  graph.taken = false;
  graph.last = std::move(ticket);
  graph.end = std::move(end);
  // Without a cache it was built for this launch alone.
  if (capacity_ == 0) retired_.splice(retired_.begin(), entries_, forget(graph));
}

void GraphCache::release(CachedGraph& graph) {
  Entries out;
  const std::lock_guard lock(mutex_);
  graph.taken = false;
  if (capacity_ == 0) out.splice(out.end(), entries_, forget(graph));
}

void GraphCache::give_up(CachedGraph& graph) {
  Entries out;
  const std::lock_guard lock(mutex_);
  Entries& to = idle(graph) ? out : retired_;
  to.splice(to.begin(), entries_, forget(graph));
}

void GraphCache::lose(CachedGraph& graph) {
  const std::lock_guard lock(mutex_);
  ++counts_.launches;
  lost_.splice(lost_.begin(), entries_, forget(graph));
}

GraphCache::Entries::iterator GraphCache::forget(const CachedGraph& graph) {
  auto at = by_shape_.equal_range(graph.schedule->hash).first;
  while (at->second->get() != &graph) ++at;
  const auto entry = at->second;
  by_shape_.erase(at);
  return entry;
}

void GraphCache::abandon() noexcept {
  for (const Entries* const entries : {&entries_, &retired_, &lost_})
    for (const auto& entry : *entries)
      if (entry->graph) entry->graph->abandon();
}

GraphCache::Counts GraphCache::counts() const {
  const std::lock_guard lock(mutex_);
  Counts counts = counts_;
  counts.cached = entries_.size();
  return counts;
}

void GraphCache::reset_counts() {
  const std::lock_guard lock(mutex_);
  counts_ = {};
}

}  // namespace polypath
