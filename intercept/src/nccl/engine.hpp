// libpolypath in this process, and the context that this library shares with the shim; and the CUDA
// driver: the one that POLYPATH_DRIVER_LIBRARY names, or libcuda.so.1. And the settings of this
// library (base/options.cpp lists them), and what it does where a sum in rank order was asked for
// and cannot be promised.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "gate/driver.hpp"
#include "gate/polypath_api.hpp"

namespace polypath::nccl {

namespace driver = gate::driver;
using gate::Engine;
using gate::InContext;
using gate::RelaxedCapture;

/// A use of the context: it is not destroyed meanwhile.
using EngineRef = std::shared_ptr<const Engine>;

/// The process's context, made when a program first creates a communicator, and again after a reset
/// of a GPU. Null, with `*why` (if not null): no library, or no GPU; the same answer from then on,
/// and for the children of a process that has it. Any thread.
EngineRef engine(std::string* why) noexcept;

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
