// A driver without peer access: a table that behaves as the one it wraps on a machine whose GPUs
// cannot address each other's memory. For measuring and testing what runs there on GPUs that can.
#pragma once

#include <memory>

#include "driver/cuda_driver.hpp"

namespace polypath {

/// cuDeviceCanAccessPeer says no, cuCtxEnablePeerAccess and the opening of memory of other
/// processes fail, and no memory is mapped for several GPUs. Copies between GPUs stay: the
/// driver carries them through host memory. Thread-safe.
std::shared_ptr<const CudaDriver> without_peer_access(
    const std::shared_ptr<const CudaDriver>& driver);

}  // namespace polypath
