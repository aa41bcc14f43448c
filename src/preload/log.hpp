// One line a message on stderr, by the setting of the library (POLYPATH_LOG_LEVEL, default: warn). The shim is
// in every process of a job: what it has to say is said once a cause.
#pragma once

#include <cstdint>

namespace polypath::preload {

enum class LogLevel : std::uint8_t { debug, info, warn, error, off };

/// printf's format, without a line end.
[[gnu::format(printf, 2, 3)]] void log_line(LogLevel level, const char* format, ...) noexcept;

}  // namespace polypath::preload
