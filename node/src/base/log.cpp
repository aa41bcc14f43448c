#include "base/log.hpp"

#include <atomic>
#include <cstdio>
#include <string>

#include "base/sigpipe_guard.hpp"

namespace polypath {
namespace {

std::atomic<LogLevel> current_level{LogLevel::warn};

std::string_view name_of(LogLevel level) noexcept {
  switch (level) {
    case LogLevel::debug: return "debug";
    case LogLevel::info: return "info";
    case LogLevel::warn: return "warning";
    case LogLevel::error: return "error";
    case LogLevel::off: return "off";
  }
  return "";
}

}  // namespace

void set_log_level(LogLevel level) { current_level.store(level, std::memory_order_relaxed); }

LogLevel log_level() noexcept { return current_level.load(std::memory_order_relaxed); }

void log_message(LogLevel level, std::string_view message) noexcept {
  if (level < log_level() || level == LogLevel::off) return;
  try {
    // One call, so that lines of several threads and processes stay whole.
    const std::string line = fmt::format("polypath: {}: {}\n", name_of(level), message);
    const SigpipeGuard guard;
    std::fwrite(line.data(), 1, line.size(), stderr);
  } catch (...) {
    // A log line that cannot be written must not harm a transfer.
  }
}

}  // namespace polypath
