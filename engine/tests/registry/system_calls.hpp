// What the registry asks of the kernel, counted; and answers that the kernel seldom gives. The
// program is linked with --wrap for these functions (CMakeLists.txt).
#pragma once

#include <atomic>
#include <functional>

namespace polypath::test {

struct SystemCalls {
  std::atomic<int> openat{0};
  std::atomic<int> lstat{0};
  std::atomic<int> fstat{0};
  std::atomic<int> pread{0};
  std::atomic<int> pwrite{0};
  std::atomic<int> fcntl{0};

  /// Calls of all functions together.
  [[nodiscard]] int all() const { return openat + lstat + fstat + pread + pwrite + fcntl; }
  void reset() { openat = lstat = fstat = pread = pwrite = fcntl = 0; }
};

/// The calls of this process since its last reset().
SystemCalls& system_calls();
/// pwrite() answers that there is no room while this is set.
std::atomic<bool>& no_room();
/// So many more calls of openat() may succeed; then the process has too many files open. Negative:
/// all may.
std::atomic<int>& openings_left();
/// Called before this process asks for a lock.
std::function<void()>& before_lock();
/// Called before this process looks at the folder from outside.
std::function<void()>& before_lstat();

}  // namespace polypath::test
