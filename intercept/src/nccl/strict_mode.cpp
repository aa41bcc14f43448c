#include "nccl/strict_mode.hpp"

#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "gate/text.hpp"

namespace polypath::nccl {
namespace {

bool is_set(const char* name, const char* value) noexcept {
  const char* const given = std::getenv(name);
  return given != nullptr && std::strcmp(given, value) == 0;
}

/// What is to be promised fails in words, not silently.
bool is_asked_for(const char* name) noexcept {
  const char* const given = std::getenv(name);
  if (given != nullptr && std::strcmp(given, "0") != 0 && std::strcmp(given, "1") != 0)
    gate::log_line(gate::LogLevel::error, "%s is '%s': 0 or 1 is wanted; nothing is promised", name,
                   given);
  return is_set(name, "1");
}

Settings read() noexcept {
  Settings its;
  its.is_on = !is_set("POLYPATH_NCCL_COLLECTIVES", "off");
  its.reproducible = is_asked_for("POLYPATH_REPRODUCIBLE");
  its.strict = is_asked_for("POLYPATH_STRICT");
  constexpr long kMaxTimeoutMs = 86'400'000;
  const char* const limit = std::getenv("POLYPATH_NCCL_TIMEOUT_MS");
  const long given = limit != nullptr ? std::strtol(limit, nullptr, 10) : 0;
  its.timeout_ms =
      static_cast<std::uint32_t>(given > 0 && given <= kMaxTimeoutMs ? given : kMaxTimeoutMs);
  return its;
}

}  // namespace

const Settings& settings() noexcept {
  static const Settings its = read();
  return its;
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
