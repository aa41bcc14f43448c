// The device of each thread, and its primary context.
#pragma once

#include <cuda.h>

namespace polypath::cudart_standin {

/// The primary context of a device, retained at the first call until the process ends.
int primary_context(int device, CUcontext& context);

/// Makes the primary context of the thread's device current.
int use_current_device();

}  // namespace polypath::cudart_standin
