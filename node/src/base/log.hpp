// The library's log: one line a message, to stderr. Off below level `warn` unless
// POLYPATH_LOG_LEVEL says otherwise. Any thread may log.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string_view>
#include <utility>

namespace polypath {

enum class LogLevel : std::uint8_t { debug, info, warn, error, off };

void set_log_level(LogLevel level);
LogLevel log_level() noexcept;

/// Writes `message` if `level` is at or above the set level. Never throws.
void log_message(LogLevel level, std::string_view message) noexcept;

/// How loudly a failed driver call is told. warn, but info for CUDA_ERROR_DEINITIALIZED and
/// CUDA_ERROR_CONTEXT_IS_DESTROYED: the process or the context is ending, and nothing is wrong.
constexpr LogLevel level_of_result(int result) noexcept {
  constexpr int kDeinitialized = 4;
  constexpr int kContextIsDestroyed = 709;
  return result == kDeinitialized || result == kContextIsDestroyed ? LogLevel::info
                                                                   : LogLevel::warn;
}

template <typename... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) {
  if (log_level() <= LogLevel::debug)
    log_message(LogLevel::debug, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  if (log_level() <= LogLevel::info)
    log_message(LogLevel::info, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_warn(fmt::format_string<Args...> format, Args&&... args) {
  if (log_level() <= LogLevel::warn)
    log_message(LogLevel::warn, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace polypath
