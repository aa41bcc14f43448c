// What programs call: NCCL's functions that this library stands in for (collective_calls.cpp,
// comm_lifecycle.cpp).
#pragma once

#include <cuda.h>

#include <cstddef>

#include "nccl/abi.hpp"

/// Declares `real`; null, or a library without the function, is the program's mistake.
#define POLYPATH_NCCL_REAL(name)                                                \
  const RealNccl* const real = real_library(__builtin_return_address(0), true); \
  if (real == nullptr || real->name == nullptr) return kInvalidUsage

using polypath::nccl::Config;
using polypath::nccl::UniqueId;

extern "C" {
#define POLYPATH_NCCL_REPLACED(name, arguments) [[gnu::visibility("default")]] int name arguments;
#include "nccl/intercepted.def"
}
