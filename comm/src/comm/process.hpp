// Processes of this machine as others know them: a number that is not taken for another process's,
// and whether the process still runs.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace polypath {

/// A plain value that can be sent to other processes of the same PID namespace.
struct ProcessId {
  std::int64_t pid = 0;
  std::uint64_t start_ticks = 0;  ///< when it started, as /proc/PID/stat has it

  friend bool operator==(const ProcessId&, const ProcessId&) = default;
};

/// This one.
ProcessId this_process();

/// Number of the PID namespace: processes of two cannot name each other.
std::uint64_t pid_namespace() noexcept;

/// 128 bits that tell this boot of this machine from any other; zero when unknown.
struct MachineId {
  std::uint64_t high = 0;
  std::uint64_t low = 0;

  friend bool operator==(const MachineId&, const MachineId&) = default;
};
MachineId this_machine() noexcept;

/// Watches one process. Thread-compatible.
class ProcessWatch {
 public:
  explicit ProcessWatch(const ProcessId& process) noexcept;
  ~ProcessWatch();
  ProcessWatch(ProcessWatch&& other) noexcept;
  ProcessWatch(const ProcessWatch&) = delete;
  ProcessWatch& operator=(const ProcessWatch&) = delete;
  ProcessWatch& operator=(ProcessWatch&&) = delete;

  /// Whether the process is gone; stays true.
  [[nodiscard]] bool ended() noexcept;

 private:
  ProcessId process_;
  int file_ = -1;  // a pidfd; -1 where the system has none
  bool ended_ = false;
};

}  // namespace polypath
