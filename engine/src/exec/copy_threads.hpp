// Threads that copy between the program's pageable memory and pinned memory. They are made when
// they are first needed, take no signals, and sleep when there is nothing to do. A child of fork()
// has none. The calling thread works too, which no thread has to be woken for.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace polypath {

/// Work that several threads do together, a piece at a time.
class SharedWork {
 public:
  virtual ~SharedWork() = default;
  /// Does one piece by the thread of number `thread`, which is the work's `seat`th; false: there is
  /// nothing left for this thread to do. Each thread calls it without pause until then, in turn
  /// with other work. A caller's thread has the number count().
  virtual bool step(int thread, int seat) noexcept = 0;
};

/// Thread-safe.
class CopyThreads {
 public:
  explicit CopyThreads(int count);
  /// No work may be under way.
  ~CopyThreads();
  CopyThreads(const CopyThreads&) = delete;
  CopyThreads& operator=(const CopyThreads&) = delete;

  [[nodiscard]] int count() const noexcept { return count_; }
  /// Whether the threads run, which they do after the first success. False where the system gives
  /// none, and in a child of the process that made them.
  bool start() noexcept;
  [[nodiscard]] bool is_running() const noexcept;
  /// Has the work done by `seats` threads at most, and waits for its end. One of them is the
  /// calling thread, unless another caller's works already. Work of several callers takes turns.
  /// False: no thread runs, and nothing was done.
  bool run(SharedWork& work, int seats);

 private:
  struct Entry {
    SharedWork* work = nullptr;
    int seats = 0;
    int taken = 0;
    int left = 0;
    bool is_closed = false;  // some thread has found nothing left: no further one begins
    std::condition_variable ended;
    std::atomic<bool> is_over{false};  // for a caller that does not sleep yet
    std::vector<int> seat_of;          // by thread; kNoSeat, or kLeft
    [[nodiscard]] bool has_ended() const noexcept { return is_closed && left == taken; }
  };

  void work(int thread);
  /// With the mutex held: the thread has found nothing left of the entry's work.
  void leave(Entry& entry);
  /// All threads look at the mutex when they wake, and when they leave. One that slept there would
  /// keep the next ones waiting for 50 us each, so they look for it for a while first.
  [[nodiscard]] std::unique_lock<std::mutex> lock_soon();
  /// With the mutex held: what the thread does next; null: nothing.
  Entry* next(int thread);

  const int count_;
  const pid_t process_;
  std::mutex mutex_;
  std::atomic<std::uint32_t> arrivals_{0};  // of work; threads sleep on it, without the mutex
  std::atomic<bool> is_running_{false};
  bool is_stopped_ = false;
  bool has_caller_ = false;  // a caller's thread works
  std::list<Entry*> entries_;
  std::vector<Entry*> last_;  // by thread: served last
  std::unique_ptr<std::vector<std::jthread>> threads_;
};

}  // namespace polypath
