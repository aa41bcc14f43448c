// The CUDA driver as this library calls it next to a program's calls: the one that
// POLYPATH_DRIVER_LIBRARY names, or libcuda.so.1.
#pragma once

#include <optional>

#include "gate/driver.hpp"

namespace polypath::nccl {

namespace driver = preload::driver;
using preload::InContext;
using preload::RelaxedCapture;

/// The number of the capture that the stream is in; 0: none. Nothing: the driver does not say. The
/// stream's context must be current.
std::optional<unsigned long long> capture_of(CUstream stream) noexcept;

}  // namespace polypath::nccl
