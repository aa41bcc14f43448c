// Launches of kernels with an attribute.
#pragma once

#include "driver/check.hpp"

namespace polypath {

/// Numbers of blocks and threads in one dimension.
struct LaunchShape {
  unsigned blocks = 1;
  unsigned threads = 1;
  unsigned shared_bytes = 0;  ///< dynamic
};

/// The driver has launch_kernel_ex. Throws DriverError.
inline void launch_with(const CudaDriver& driver, CUlaunchAttribute attribute, CUfunction kernel,
                        const LaunchShape& shape, CUstream stream, void** parameters) {
  CUlaunchConfig config{};
  config.gridDimX = shape.blocks;
  config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = shape.threads;
  config.blockDimY = config.blockDimZ = 1;
  config.sharedMemBytes = shape.shared_bytes;
  config.hStream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  POLYPATH_CHECK(driver, launch_kernel_ex(&config, kernel, parameters, nullptr));
}

/// Whether kernels may begin early on the current context's GPU: from compute capability 9 on.
inline bool supports_pdl(const CudaDriver& driver) {
  CUdevice device = 0;
  int major = 0;
  POLYPATH_CHECK(driver, ctx_get_device(&device));
  POLYPATH_CHECK(
      driver, device_get_attribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
  return driver.launch_kernel_ex != nullptr && major >= 9;
}

/// A kernel that calls grid_dependency_wait() before it uses memory. `early`: it begins while
/// the one before it on the stream ends (docs/cuda-notes.md). Not in capture: graphs would get
/// edges that older callers of cuGraphGetEdges cannot read. Throws DriverError.
inline void launch_pdl(const CudaDriver& driver, bool early, CUfunction kernel,
                       const LaunchShape& shape, CUstream stream, void** parameters) {
  if (!early) {
    POLYPATH_CHECK(driver, launch_kernel(kernel, shape.blocks, 1, 1, shape.threads, 1, 1,
                                         shape.shared_bytes, stream, parameters, nullptr));
    return;
  }
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  attribute.value.programmaticStreamSerializationAllowed = 1;
  launch_with(driver, attribute, kernel, shape, stream, parameters);
}

}  // namespace polypath
