// What programs call: NCCL's functions that this library stands in for (calls.cpp, life.cpp).
#pragma once

#include <cuda.h>

#include <cstddef>

#include "nccl/abi.hpp"

using polypath::nccl::Config;
using polypath::nccl::UniqueId;

extern "C" {
#define POLYPATH_NCCL_REPLACED(name, arguments) [[gnu::visibility("default")]] int name arguments;
#include "nccl/replaced.def"
}
