// How often each replaced function was called, and what became of the calls; GB/s of large copies,
// by direction, size and issuer: medians of what was sampled; and the report of that, which is
// written once when the process ends (report.cpp). Nothing is counted unless statistics are wanted.
// Any thread; threads share counters without meeting.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "cuda/copy.hpp"
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

/// For a child: its counts begin at zero, and it has no samples.
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

/// Copies of [bytes, 2 bytes).
struct Rate {
  std::size_t bytes;
  bool is_issued;       ///< by the engine, not by the driver
  std::uint64_t count;  ///< of samples
  double gbps;          ///< the median of the last of them
};

inline constexpr std::size_t kSizeClasses = 24;  ///< from 256 KiB
inline constexpr std::size_t kMinRated = std::size_t{1} << 18;

/// The rate of a size class (an index below kSizeClasses); count 0 when nothing was sampled.
Rate rate_of(Direction direction, std::size_t size_class, bool is_issued) noexcept;

void add_rate(Direction direction, std::size_t bytes, bool is_issued, double microseconds) noexcept;

struct EventPair;

/// Times one copy on its stream by two events of the stream's own context, if statistics are
/// wanted, the copy is large, the stream is not in capture, and a pair of events is free. Pairs
/// whose time has come are read on later calls, never waited for.
class StreamSample {
 public:
  /// To be made before the copy.
  explicit StreamSample(const Copy& copy) noexcept;
  /// To be called after it, with what the program was answered.
  void end(CUresult result, bool is_issued) noexcept;

 private:
  EventPair* pair_ = nullptr;
  const Copy& copy_;
};

/// Times one copy that the calling thread waits for, by its clock.
class WaitSample {
 public:
  explicit WaitSample(const Copy& copy) noexcept;
  void end(CUresult result, bool is_issued) noexcept;

 private:
  const Copy& copy_;
  std::uint64_t begin_ns_ = 0;
};

/// Reads POLYPATH_STATS, and lets counting begin if it is set: "text" (to stderr) or the name of a
/// JSON file, in which %p is the process id; without it ".<pid>" goes before the ending.
void read_report_setting() noexcept;

/// For an engine that is destroyed: the report tells of it as well. Not by two threads at once.
void keep_report_of(const Engine& engine) noexcept;

/// Writes the report unless that was done, or no replaced function was called. Calls nothing of the
/// CUDA driver.
void write_report() noexcept;

}  // namespace polypath::preload
