#include "comm/process.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

namespace polypath {
namespace {

struct Stat {
  char state = '?';
  std::uint64_t start_ticks = 0;
};

/// Fields 3 and 22 of /proc/PID/stat; nothing when there is no such process.
std::optional<Stat> stat_of(std::int64_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  // The second field is the program's name, in brackets, and may hold anything.
  const auto end = text.rfind(')');
  if (end == std::string::npos || end + 2 >= text.size()) return std::nullopt;
  Stat stat;
  std::size_t at = end + 2;
  stat.state = text[at];
  for (int field = 3; field < 22 && at != std::string::npos; ++field) {
    at = text.find(' ', at);
    if (at != std::string::npos) ++at;
  }
  if (at == std::string::npos) return std::nullopt;
  std::from_chars(text.data() + at, text.data() + text.size(), stat.start_ticks);
  return stat;
}

bool runs(const ProcessId& process) {
  const std::optional<Stat> stat = stat_of(process.pid);
  return stat && stat->start_ticks == process.start_ticks && stat->state != 'Z' &&
         stat->state != 'X';
}

}  // namespace

ProcessId this_process() {
  const std::int64_t pid = ::getpid();
  const std::optional<Stat> stat = stat_of(pid);
  return {pid, stat ? stat->start_ticks : 0};
}

std::uint64_t pid_namespace() noexcept {
  struct stat status{};
  return ::stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

MachineId this_machine() noexcept {
  try {
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::string text;
    std::getline(file, text);
    std::erase(text, '-');
    MachineId id;
    if (text.size() != 32) return id;
    std::from_chars(text.data(), text.data() + 16, id.high, 16);
    std::from_chars(text.data() + 16, text.data() + 32, id.low, 16);
    return id;
  } catch (...) {
    return {};
  }
}

ProcessWatch::ProcessWatch(const ProcessId& process) noexcept : process_(process) {
#ifdef SYS_pidfd_open
  file_ = static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(process.pid), 0));
#endif
  // The number may have gone to another process before the file was opened.
  try {
    ended_ = !runs(process);
  } catch (...) {
    ended_ = false;
  }
}

ProcessWatch::ProcessWatch(ProcessWatch&& other) noexcept
    : process_(other.process_), file_(std::exchange(other.file_, -1)), ended_(other.ended_) {}

ProcessWatch::~ProcessWatch() {
  if (file_ >= 0) ::close(file_);
}

bool ProcessWatch::ended() noexcept {
  if (ended_) return true;
  if (file_ >= 0) {
    pollfd poll_fd{file_, POLLIN, 0};
    ended_ = ::poll(&poll_fd, 1, 0) == 1;
  } else {
    try {
      ended_ = !runs(process_);
    } catch (...) {
      return false;
    }
  }
  return ended_;
}

}  // namespace polypath
