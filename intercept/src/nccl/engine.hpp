// libpolypath in this process, and the context that this library shares with the shim; and the CUDA
// driver: the one that POLYPATH_DRIVER_LIBRARY names, or libcuda.so.1.
#pragma once

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

}  // namespace polypath::nccl
