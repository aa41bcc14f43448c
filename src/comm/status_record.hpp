// What kernels of a communicator share with the host, under the engine's names.
#pragma once

#include "polypath/device/patience.hpp"

namespace polypath {

using device::wait_context;
using device::wait_error;

}  // namespace polypath
