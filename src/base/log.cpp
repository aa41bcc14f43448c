#include "base/log.hpp"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <memory>

namespace polypath {
namespace {

std::atomic<LogLevel> current_level{LogLevel::warn};

spdlog::logger& logger() {
  // Never destroyed: threads may still log while the process exits.
  static auto* const instance = [] {
    auto* made = new spdlog::logger("polypath", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("polypath: %l: %v");
    made->set_level(spdlog::level::trace);
    return made;
  }();
  return *instance;
}

spdlog::level::level_enum to_spdlog(LogLevel level) noexcept {
  switch (level) {
    case LogLevel::debug: return spdlog::level::debug;
    case LogLevel::info: return spdlog::level::info;
    case LogLevel::warn: return spdlog::level::warn;
    case LogLevel::error: return spdlog::level::err;
    case LogLevel::off: return spdlog::level::off;
  }
  return spdlog::level::off;
}

}  // namespace

void set_log_level(LogLevel level) { current_level.store(level, std::memory_order_relaxed); }

LogLevel log_level() noexcept { return current_level.load(std::memory_order_relaxed); }

void log_message(LogLevel level, std::string_view message) noexcept {
  if (level < log_level() || level == LogLevel::off) return;
  try {
    logger().log(to_spdlog(level), message);
  } catch (...) {
    // A log line that cannot be written must not harm a transfer.
  }
}

}  // namespace polypath
