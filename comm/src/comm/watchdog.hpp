// The thread of a rank that watches the board while the rank's own threads may be waiting.
#pragma once

#include <functional>
#include <thread>
#include <vector>

#include "comm/control_segment.hpp"
#include "comm/rank_table.hpp"

namespace polypath {

/// Aborts the board when the process of a rank that has not left is gone.
class Watchdog {
 public:
  /// `look` is called on the thread at every abort, and many times a second otherwise; a thousand
  /// times where it was false. It must not throw.
  Watchdog(std::shared_ptr<ControlSegment> board, const Members& members,
           std::function<bool()> look);
  /// Ends the thread.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  struct Other {
    std::vector<int> ranks;
    ProcessWatch process;
    std::int64_t pid;
  };
  void run(const std::stop_token& stop);
  void look_at_processes();

  std::shared_ptr<ControlSegment> board_;
  std::vector<Other> others_;  // processes
  std::function<bool()> look_;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace polypath
