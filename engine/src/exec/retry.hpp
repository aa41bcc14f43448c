// When to retry after a failure that may be temporary, such as lack of memory.
#pragma once

#include <algorithm>

namespace polypath {

/// One thing that failed: it is tried again when it was asked for kFirstPause times more, and after
/// each further failure twice as often. For one thread, or under its owner's lock.
class Retry {
 public:
  static constexpr int kFirstPause = 16;
  static constexpr int kLongestPause = 4096;

  /// It failed again.
  void failed() noexcept { left_ = pause_ = std::min(2 * pause_, kLongestPause); }
  /// It is asked for: whether to try now.
  bool due() noexcept { return left_ == 0 || left_-- == 0; }

 private:
  int pause_ = kFirstPause;
  int left_ = kFirstPause;
};

}  // namespace polypath
