// A kernel's launch with an attribute.
#pragma once

#include "driver/check.hpp"

namespace polypath {

/// The driver has launch_kernel_ex. Blocks and threads of one dimension, no dynamic shared memory.
/// Throws DriverError.
inline void launch_with(const CudaDriver& driver, CUlaunchAttribute attribute, CUfunction kernel,
                        unsigned blocks, unsigned threads, CUstream stream, void** parameters) {
  CUlaunchConfig config{};
  config.gridDimX = blocks;
  config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = threads;
  config.blockDimY = config.blockDimZ = 1;
  config.hStream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  POLYPATH_CHECK(driver, launch_kernel_ex(&config, kernel, parameters, nullptr));
}

}  // namespace polypath
