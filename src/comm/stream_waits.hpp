// Streams that wait for words in memory, and are never left waiting: after an abort the words get
// the values that are waited for.
//
// A stream that waits so holds one of the GPU's hardware queues (docs/cuda-notes.md).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "driver/cuda_driver.hpp"
#include "tune/resources.hpp"

namespace polypath {

/// Whether a capture is under way on the stream.
bool is_captured(const CudaDriver& driver, CUstream stream);

/// A word of this rank's memory, and the least value that is waited for, in the circle of 64-bit
/// numbers.
struct AwaitedWord {
  CUdeviceptr address = 0;
  std::uint64_t value = 0;
};

/// Of one GPU. Thread-safe; no lock is held over a driver call that may block.
class StreamWaits {
 public:
  /// Both must outlive it; `context` is that of all streams. Throws DriverError.
  StreamWaits(const CudaDriver& driver, CUcontext context);

  /// Lets `stream` wait for all `words`; `what` says for what, and is called when that is wanted.
  /// Throws NotSupported, DriverError. The context is current.
  void wait(std::span<const AwaitedWord> words, CUstream stream, std::function<std::string()> what);

  /// What a stream has been waiting for longer than `limit`; empty for none. To be asked many times
  /// a second: a wait counts from when it was first found to have begun.
  std::string overdue(std::chrono::milliseconds limit);
  /// Lets all streams go on; to be repeated, because others may overwrite the words.
  void release() noexcept;
  /// Whether a stream still waits, outside of graphs.
  bool any();

 private:
  using Clock = std::chrono::steady_clock;
  struct Events {
    Event before;
    Event after;
  };
  struct Pending {
    std::vector<AwaitedWord> words;
    std::function<std::string()> what;
    std::unique_ptr<Events> events;
    Clock::time_point issued{};  // none: not yet
    std::optional<Clock::time_point> begun;
  };
  [[nodiscard]] bool done(const Event& event) const;
  std::list<Pending>::iterator add(std::span<const AwaitedWord> words,
                                   std::function<std::string()> what);
  void sweep();  // with the lock

  const CudaDriver& driver_;
  CUcontext context_;
  Stream stream_;  // carries nothing but release(), past the queues that waiting streams hold
  std::mutex mutex_;
  std::list<Pending> pending_;
  std::size_t sweep_at_ = 64;
  std::vector<std::unique_ptr<Events>> free_;
  std::map<CUdeviceptr, std::uint64_t> captured_;  // words that graphs wait for
};

}  // namespace polypath
