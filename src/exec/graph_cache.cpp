#include "exec/graph_cache.hpp"

#include <algorithm>
#include <set>

#include "base/log.hpp"
#include "exec/context_guard.hpp"

namespace polypath {
namespace {

constexpr std::size_t kMostRetired = 64;
constexpr std::size_t kMostRefused = 256;
/// So many graphs go by streams after one could not be built, before the next is tried.
constexpr int kPauseAfterOutOfMemory = 256;
constexpr int kPauseAfterFailure = 16;
/// So many graphs are built before a cache that shrank, because memory ran out, may grow again.
constexpr int kBuildsUntilGrowth = 1024;

/// What the driver will say of the same graph the next time as well.
bool is_final(int code) {
  return code == CUDA_ERROR_INVALID_VALUE || code == CUDA_ERROR_NOT_SUPPORTED;
}

bool same_shape(const CachedGraph& graph, const GraphRequest& request) {
  return graph.gpu == request.gpu && (graph.dag == request.dag || *graph.dag == *request.dag);
}

bool same_buffers(const CachedGraph& graph, const GraphRequest& request) {
  return graph.dst_buffer == request.dst_buffer && graph.src_buffer == request.src_buffer;
}

/// Free memory of the GPUs that the graph's copies run on; 0 where the driver does not tell.
std::uint64_t free_bytes(const CudaDriver& driver, const GraphRequest& request) {
  std::set<CUcontext> contexts;
  for (const NodePlace& place : request.places) contexts.insert(place.context);
  std::uint64_t sum = 0;
  try {
    ContextGuard guard(driver);
    for (const CUcontext context : contexts) {
      guard.use(context);
      std::size_t free = 0;
      std::size_t total = 0;
      if (driver.mem_get_info(&free, &total) != CUDA_SUCCESS) return 0;
      sum += free;
    }
  } catch (const DriverError&) {
    return 0;
  }
  return sum;
}

}  // namespace

GraphCache::GraphCache(std::shared_ptr<const CudaDriver> driver, int capacity)
    : driver_(std::move(driver)),
      capacity_(static_cast<std::size_t>(capacity)),
      limit_(capacity_) {}

GraphCache::~GraphCache() = default;

bool GraphCache::idle(CachedGraph& graph) const {
  if (graph.end == nullptr) return true;
  if (driver_->event_query(graph.end->get()) != CUDA_SUCCESS) return false;
  graph.end = nullptr;
  graph.last = nullptr;
  return true;
}

GraphCache::Found GraphCache::find(const GraphRequest& request, const Ticket& ticket) {
  Found found;
  const auto [begin, end] = by_shape_.equal_range(request.dag->hash);
  for (auto at = begin; at != end; ++at) {
    CachedGraph& graph = **at->second;
    if (graph.taken || !same_shape(graph, request)) continue;
    const bool holds = same_buffers(graph, request) && graph.graph->places() == request.places;
    if (!holds && found.idle != nullptr) continue;
    if (holds && graph.last != nullptr && graph.last->caller() == ticket.caller()) {
      found.exact = &graph;
      return found;
    }
    if (idle(graph)) {
      (holds ? found.exact : found.idle) = &graph;
      if (holds) return found;
    } else if (holds && graph.last->allows(ticket, *driver_)) {
      found.running = &graph;
    }
  }
  return found;
}

bool GraphCache::patch(CachedGraph& graph, const GraphRequest& request) {
  try {
    counts_.patched_nodes += graph.graph->patch(request.places, !same_buffers(graph, request));
  } catch (const DriverError& error) {
    log_info("a graph could not be given other addresses: {}", error.what());
    give_up(graph);
    return false;
  }
  graph.dst_buffer = request.dst_buffer;
  graph.src_buffer = request.src_buffer;
  ++counts_.patches;
  return true;
}

CachedGraph* GraphCache::acquire(const GraphRequest& request, const Ticket& ticket) {
  sweep_retired();
  const Found found = find(request, ticket);
  if (found.exact != nullptr) {
    ++counts_.hits;
    return take(*found.exact);
  }
  if (found.idle != nullptr && patch(*found.idle, request)) return take(*found.idle);
  if (CachedGraph* const built = build(request)) return take(*built);
  if (found.running == nullptr) return nullptr;
  ++counts_.hits;
  return take(*found.running);
}

CachedGraph* GraphCache::take(CachedGraph& graph) {
  graph.taken = true;
  const auto [begin, end] = by_shape_.equal_range(graph.dag->hash);
  for (auto at = begin; at != end; ++at)
    if (at->second->get() == &graph) entries_.splice(entries_.begin(), entries_, at->second);
  return &graph;
}

CachedGraph* GraphCache::build(const GraphRequest& request) {
  if (pause_ > 0) {
    --pause_;
    ++counts_.failed;
    return nullptr;
  }
  const auto refused = [&](const auto& dag) { return dag == request.dag || *dag == *request.dag; };
  if (std::ranges::any_of(refused_, refused)) {
    ++counts_.failed;
    return nullptr;
  }
  const bool room =
      capacity_ == 0 ? retired_.size() < kMostRetired : entries_.size() < limit_ || evict_one();
  if (!room) {
    ++counts_.busy;
    return nullptr;
  }
  for (;;) {
    try {
      Entries made;
      made.push_back(make(request));
      entries_.splice(entries_.begin(), made);
      by_shape_.emplace(request.dag->hash, entries_.begin());
      ++counts_.builds;
      if (limit_ < capacity_ && ++builds_since_shrunk_ >= kBuildsUntilGrowth) limit_ = capacity_;
      return entries_.front().get();
    } catch (const DriverError& error) {
      if (error.code() == CUDA_ERROR_OUT_OF_MEMORY && evict_one()) {
        limit_ = entries_.size() + 1;
        builds_since_shrunk_ = 0;
        continue;
      }
      log_info("streams instead of a graph: {}", error.what());
      ++counts_.failed;
      if (error.code() == CUDA_ERROR_OUT_OF_MEMORY) {
        pause_ = kPauseAfterOutOfMemory;
      } else if (!is_final(error.code())) {
        pause_ = kPauseAfterFailure;
      } else if (refused_.size() < kMostRefused) {
        refused_.push_back(request.dag);
      }
      return nullptr;
    }
  }
}

std::unique_ptr<CachedGraph> GraphCache::make(const GraphRequest& request) {
  auto made = std::make_unique<CachedGraph>();
  made->dag = request.dag;
  made->gpu = request.gpu;
  made->dst_buffer = request.dst_buffer;
  made->src_buffer = request.src_buffer;
  const std::uint64_t before = free_bytes(*driver_, request);
  made->graph.emplace(*driver_, *made->dag, request.places);
  const std::uint64_t after = free_bytes(*driver_, request);
  made->gpu_bytes = before > after ? before - after : 0;
  return made;
}

void GraphCache::launched(CachedGraph& graph, std::shared_ptr<Ticket> ticket,
                          std::shared_ptr<PooledEvent> end) {
  ++counts_.launches;
  graph.taken = false;
  graph.last = std::move(ticket);
  graph.end = std::move(end);
  // Without a cache it was built for this launch alone.
  if (capacity_ == 0) retired_.splice(retired_.begin(), entries_, forget(graph));
}

void GraphCache::release(CachedGraph& graph) {
  graph.taken = false;
  if (capacity_ == 0) entries_.erase(forget(graph));
}

void GraphCache::give_up(CachedGraph& graph) {
  const auto entry = forget(graph);
  if (idle(graph)) {
    entries_.erase(entry);
  } else {
    retired_.splice(retired_.begin(), entries_, entry);
  }
}

void GraphCache::lose(CachedGraph& graph) { lost_.splice(lost_.begin(), entries_, forget(graph)); }

bool GraphCache::evict_one() {
  for (auto entry = entries_.end(); entry != entries_.begin();) {
    CachedGraph& graph = **--entry;
    if (graph.taken || !idle(graph)) continue;
    entries_.erase(forget(graph));
    ++counts_.evictions;
    return true;
  }
  return false;
}

void GraphCache::sweep_retired() {
  std::erase_if(retired_, [&](const auto& graph) { return idle(*graph); });
}

GraphCache::Entries::iterator GraphCache::forget(const CachedGraph& graph) {
  auto at = by_shape_.equal_range(graph.dag->hash).first;
  while (at->second->get() != &graph) ++at;
  const auto entry = at->second;
  by_shape_.erase(at);
  return entry;
}

GraphCache::Counts GraphCache::counts() const {
  Counts counts = counts_;
  counts.cached = entries_.size();
  for (const Entries* entries : {&entries_, &retired_, &lost_})
    for (const auto& graph : *entries) counts.gpu_bytes += graph->gpu_bytes;
  return counts;
}

void GraphCache::reset_counts() { counts_ = {}; }

}  // namespace polypath
