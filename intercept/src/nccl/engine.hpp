// libpolypath in this process, and one context of it; and the CUDA driver: the one that
// POLYPATH_DRIVER_LIBRARY names, or libcuda.so.1.
#pragma once

#include "gate/driver.hpp"
#include "gate/polypath_api.hpp"

namespace polypath::nccl {

namespace driver = gate::driver;
using gate::Engine;
using gate::InContext;
using gate::RelaxedCapture;

/// Made when a program first creates a communicator. Null, with `*why` (if not null): no library,
/// or no GPU; the same answer from then on, and for the children of a process that has it. Any
/// thread.
const Engine* engine(const char** why) noexcept;

}  // namespace polypath::nccl
