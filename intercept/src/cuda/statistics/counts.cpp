#include "cuda/statistics/statistics.hpp"

namespace polypath::preload {
namespace {

constexpr std::size_t kShards = 16;
constexpr std::size_t kImportEvents = 4;

struct alignas(64) Shard {
  detail::SharedCounts symbols[kSymbolCount];
};

constinit Shard shards[kShards]{};
constinit std::atomic<std::uint64_t> imports[kImportEvents]{};

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
}

}  // namespace polypath::preload
