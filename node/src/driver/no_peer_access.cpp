#include "driver/no_peer_access.hpp"

namespace polypath {
namespace {

CUresult no_access(int* can, CUdevice /*device*/, CUdevice /*peer*/) {
  if (can == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *can = 0;
  return CUDA_SUCCESS;
}

CUresult no_peer(CUcontext /*peer*/, unsigned int /*flags*/) {
  return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
}

// Memory of this GPU itself could be opened; a handle does not say whose it is.
CUresult no_import(CUdeviceptr* /*memory*/, CUipcMemHandle /*handle*/, unsigned int /*flags*/) {
  return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
}

}  // namespace

std::shared_ptr<const CudaDriver> without_peer_access(
    const std::shared_ptr<const CudaDriver>& driver) {
  auto table = std::make_shared<CudaDriver>(*driver);
  table->device_can_access_peer = &no_access;
  table->ctx_enable_peer_access = &no_peer;
  table->ipc_open_mem_handle = &no_import;
  // Without it staging memory is plain memory, which peer access alone would share.
  table->mem_set_access = nullptr;
  return table;
}

}  // namespace polypath
