#include "nccl/strict_mode.hpp"

#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "gate/text.hpp"

namespace polypath::nccl {
namespace {

bool is_set(const char* name, const char* value) noexcept {
  const char* const text = std::getenv(name);
  return text != nullptr && std::strcmp(text, value) == 0;
}

/// A required guarantee fails with a message, not silently.
bool is_asked_for(const char* name) noexcept {
  const char* const text = std::getenv(name);
  if (text != nullptr && std::strcmp(text, "0") != 0 && std::strcmp(text, "1") != 0)
    gate::log_line(gate::LogLevel::error, "%s is '%s': 0 or 1 is wanted; nothing is promised", name,
                   text);
  return is_set(name, "1");
}

Settings read() noexcept {
  Settings settings;
  settings.is_on = !is_set("POLYPATH_NCCL_COLLECTIVES", "off");
  settings.reproducible = is_asked_for("POLYPATH_REPRODUCIBLE");
  settings.strict = is_asked_for("POLYPATH_STRICT");
  constexpr long kMaxTimeoutMs = 86'400'000;
  const char* const limit = std::getenv("POLYPATH_NCCL_TIMEOUT_MS");
  const long timeout = limit != nullptr ? std::strtol(limit, nullptr, 10) : 0;
  settings.timeout_ms =
      static_cast<std::uint32_t>(timeout > 0 && timeout <= kMaxTimeoutMs ? timeout : kMaxTimeoutMs);
  return settings;
}

}  // namespace

const Settings& settings() noexcept {
  static const Settings settings = read();
  return settings;
}

void report_unguaranteed(const char* what, const char* why) noexcept {
  if (!settings().reproducible) return;
  // Other threads wait here until it is written: a later one must not end the process first.
  [[maybe_unused]] static const bool is_told = [&] {
    gate::log_line(gate::LogLevel::error, "sums of %s are not in rank order: %s%s", what, why,
                   settings().strict ? "; stopped (--strict)" : "");
    if (settings().strict) _exit(kStrictExitCode);
    return true;
  }();
}

}  // namespace polypath::nccl
