// Threads of this library in a program that knows nothing of them.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <thread>
#include <utility>

namespace polypath {

/// While it lives the calling thread blocks all signals but those that tell of its own errors; the
/// threads that it makes are born so.
class BlockedSignals {
 public:
  BlockedSignals() noexcept {
    sigset_t blocked;
    sigfillset(&blocked);
    for (const int error : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS})
      sigdelset(&blocked, error);
    pthread_sigmask(SIG_SETMASK, &blocked, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
};

/// In a loop that waits for another thread.
inline void pause_cpu() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// A thread that takes no signals: they are for the program's own threads. One of those may wait
/// for signals (sigwait) that all others have blocked.
template <typename Body>
[[nodiscard]] std::jthread make_thread(Body&& body) {
  const BlockedSignals blocked;
  return std::jthread(std::forward<Body>(body));
}

}  // namespace polypath
