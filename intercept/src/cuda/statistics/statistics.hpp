// How often each replaced function was called, and what became of the calls; and the report of
// that, which is written once when the process ends (report.cpp). Nothing is counted unless
// statistics are wanted. Any thread; threads share counters without meeting.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "cuda/intercepted.hpp"
#include "gate/polypath_api.hpp"

namespace polypath::preload {

struct CallCounts {
  std::uint64_t calls = 0;
  std::uint64_t bytes = 0;
  std::uint64_t offloaded = 0;  ///< to the engine, which then
  std::uint64_t issued = 0;     ///< issued them, or left them to the driver
};
CallCounts calls_of(Symbol symbol) noexcept;

/// What the engine was told of memory that processes share; refused: what it could not keep of
/// that.
enum class ImportEvent : std::uint8_t { exported, imported, closed, refused };
std::uint64_t count_of(ImportEvent event) noexcept;

/// Counting begins.
void want_statistics() noexcept;

/// For a child: its counts begin at zero.
void forget_statistics() noexcept;

namespace detail {

extern std::atomic<bool> statistics_wanted;

struct SharedCounts {
  std::atomic<std::uint64_t> calls;
  std::atomic<std::uint64_t> bytes;
  std::atomic<std::uint64_t> offloaded;
  std::atomic<std::uint64_t> issued;
};

/// The calling thread's counters.
SharedCounts& shared_counts(Symbol symbol) noexcept;

}  // namespace detail

inline bool are_statistics_wanted() noexcept {
  return detail::statistics_wanted.load(std::memory_order_relaxed);
}

inline void count_call(Symbol symbol, std::size_t bytes) noexcept {
  if (!are_statistics_wanted()) return;
  detail::SharedCounts& counts = detail::shared_counts(symbol);
  counts.calls.fetch_add(1, std::memory_order_relaxed);
  counts.bytes.fetch_add(bytes, std::memory_order_relaxed);
}

inline void count_offloaded(Symbol symbol) noexcept {
  if (are_statistics_wanted())
    detail::shared_counts(symbol).offloaded.fetch_add(1, std::memory_order_relaxed);
}

inline void count_issued(Symbol symbol) noexcept {
  if (are_statistics_wanted())
    detail::shared_counts(symbol).issued.fetch_add(1, std::memory_order_relaxed);
}

void count(ImportEvent event) noexcept;

/// Reads POLYPATH_STATS, and lets counting begin if it is set: "text" (to stderr) or the name of a
/// JSON file, in which %p is the process id; without it ".<pid>" goes before the ending.
void read_report_setting() noexcept;

/// For an engine that is destroyed: the report tells of it as well. Not by two threads at once.
void keep_report_of(const Engine& engine) noexcept;

/// Writes the report unless that was done, or no replaced function was called. Calls nothing of the
/// CUDA driver.
void write_report() noexcept;

}  // namespace polypath::preload
