// GB/s of large copies, by direction, size and issuer: medians of what was sampled. Any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/copy.hpp"

namespace polypath::preload {

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

/// For a child: it begins without samples.
void forget_rates() noexcept;

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

}  // namespace polypath::preload
