#include "preload/log.hpp"

#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "preload/output.hpp"

namespace polypath::preload {
namespace {

constexpr const char* kNames[] = {"debug", "info", "warn", "error", "off"};

/// What cannot be read is the library's to complain about.
LogLevel wanted_level() noexcept {
  const char* const text = std::getenv("POLYPATH_LOG_LEVEL");
  for (std::uint8_t i = 0; text != nullptr && i < sizeof kNames / sizeof *kNames; ++i)
    if (std::strcmp(text, kNames[i]) == 0) return static_cast<LogLevel>(i);
  return LogLevel::warn;
}

}  // namespace

void log_line(LogLevel level, const char* format, ...) noexcept {
  if (level < wanted_level() || level == LogLevel::off) return;
  Text line;
  line.append("polypath: %s: ", kNames[static_cast<std::uint8_t>(level)]);
  va_list arguments;
  va_start(arguments, format);
  line.append_list(format, arguments);
  va_end(arguments);
  line.append("\n");
  line.write_to(STDERR_FILENO);
}

}  // namespace polypath::preload
