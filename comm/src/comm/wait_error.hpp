// What kernels of a communicator share with the host, under the engine's names.
#pragma once

#include "polypath/device/wait_context.hpp"

namespace polypath {

using device::wait_context;
using device::wait_error;

}  // namespace polypath
