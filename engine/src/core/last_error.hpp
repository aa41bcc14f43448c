// The error of a thread's last call of the C API.
#pragma once

#include "polypath/polypath.h"

namespace polypath {

/// Sets the calling thread's last error; gives `status`.
polypath_status failed(polypath_status status, const char* message, int cuda_result = 0) noexcept;

}  // namespace polypath
