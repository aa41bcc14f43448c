// A driver whose copies do nothing: what is left of a call's time is the way to it.
#include <cuda.h>

extern "C" {

[[gnu::visibility("default")]] CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr, CUdeviceptr, size_t,
                                                             CUstream) {
  return CUDA_SUCCESS;
}

[[gnu::visibility("default")]] CUresult cuMemcpyHtoD_v2(CUdeviceptr, const void*, size_t) {
  return CUDA_SUCCESS;
}
}
