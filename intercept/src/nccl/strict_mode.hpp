// The settings of this library (base/options.cpp lists them), and what it does where a sum in rank
// order was asked for and cannot be promised.
#pragma once

#include <cstdint>

namespace polypath::nccl {

struct Settings {
  bool is_on = true;             ///< nccl_collectives
  bool reproducible = false;     ///< reproducible
  bool strict = false;           ///< strict
  std::uint32_t timeout_ms = 0;  ///< nccl_timeout_ms
};

/// Read once a process.
const Settings& settings() noexcept;

/// In reproducible mode: `what` (a function, or a communicator) sums in NCCL's order, and `why`.
/// The first time it is one line on stderr; with `strict` it is the end of the process, with
/// kStrictExitCode.
void report_unguaranteed(const char* what, const char* why) noexcept;

/// The exit code of `polypath run` when it cannot do for a program what was requested.
inline constexpr int kStrictExitCode = 125;

}  // namespace polypath::nccl
