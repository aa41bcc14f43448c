// cuda.h and nvml.h, with every function visible: this library exports them. Where cuda.h renames a
// function by macro, both the old and the new name are exported, as the real driver does.
#pragma once

#pragma GCC visibility push(default)
#include <cuda.h>
#include <cudaTypedefs.h>
#include <nvml.h>

#undef cuCtxCreate
#undef cuDevicePrimaryCtxReset
#undef cuEventElapsedTime
#undef cuGetProcAddress
#undef cuIpcOpenMemHandle
#undef cuMemcpyBatchAsync

extern "C" {
CUresult CUDAAPI cuCtxCreate_v2(CUcontext* context, unsigned int flags, CUdevice device);
CUresult CUDAAPI cuCtxCreate_v3(CUcontext* context, CUexecAffinityParam* affinity, int count,
                                unsigned int flags, CUdevice device);
CUresult CUDAAPI cuDevicePrimaryCtxReset(CUdevice device);
using PFN_cuDevicePrimaryCtxReset_v7000 = decltype(&cuDevicePrimaryCtxReset);
CUresult CUDAAPI cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end);
CUresult CUDAAPI cuGetProcAddress(const char* symbol, void** function, int version,
                                  cuuint64_t flags);
CUresult CUDAAPI cuIpcOpenMemHandle(CUdeviceptr* address, CUipcMemHandle handle,
                                    unsigned int flags);
using PFN_cuIpcOpenMemHandle_v4010 = decltype(&cuIpcOpenMemHandle);  // the header keeps its own

// Stream 0 of these is the calling thread's own default stream.
CUresult CUDAAPI cuMemcpy_ptds(CUdeviceptr dst, CUdeviceptr src, size_t bytes);
CUresult CUDAAPI cuMemcpyPeer_ptds(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src,
                                   CUcontext src_context, size_t bytes);
CUresult CUDAAPI cuMemcpyHtoD_v2_ptds(CUdeviceptr dst, const void* src, size_t bytes);
CUresult CUDAAPI cuMemcpyDtoH_v2_ptds(void* dst, CUdeviceptr src, size_t bytes);
CUresult CUDAAPI cuMemcpyDtoD_v2_ptds(CUdeviceptr dst, CUdeviceptr src, size_t bytes);
CUresult CUDAAPI cuMemcpyAsync_ptsz(CUdeviceptr dst, CUdeviceptr src, size_t bytes,
                                    CUstream stream);
CUresult CUDAAPI cuMemcpyPeerAsync_ptsz(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src,
                                        CUcontext src_context, size_t bytes, CUstream stream);
CUresult CUDAAPI cuMemcpyHtoDAsync_v2_ptsz(CUdeviceptr dst, const void* src, size_t bytes,
                                           CUstream stream);
CUresult CUDAAPI cuMemcpyDtoHAsync_v2_ptsz(void* dst, CUdeviceptr src, size_t bytes,
                                           CUstream stream);
CUresult CUDAAPI cuMemcpyDtoDAsync_v2_ptsz(CUdeviceptr dst, CUdeviceptr src, size_t bytes,
                                           CUstream stream);

CUresult CUDAAPI cuMemsetD8_v2_ptds(CUdeviceptr dst, unsigned char value, size_t count);
CUresult CUDAAPI cuMemsetD16_v2_ptds(CUdeviceptr dst, unsigned short value, size_t count);
CUresult CUDAAPI cuMemsetD32_v2_ptds(CUdeviceptr dst, unsigned int value, size_t count);
CUresult CUDAAPI cuMemsetD8Async_ptsz(CUdeviceptr dst, unsigned char value, size_t count,
                                      CUstream stream);
CUresult CUDAAPI cuMemsetD16Async_ptsz(CUdeviceptr dst, unsigned short value, size_t count,
                                       CUstream stream);
CUresult CUDAAPI cuMemsetD32Async_ptsz(CUdeviceptr dst, unsigned int value, size_t count,
                                       CUstream stream);

// Batches of copies: the first version said which copy failed.
CUresult CUDAAPI cuMemcpyBatchAsync(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes,
                                    size_t count, CUmemcpyAttributes* attributes, size_t* firsts,
                                    size_t attribute_count, size_t* fail_index, CUstream stream);
CUresult CUDAAPI cuMemcpyBatchAsync_ptsz(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes,
                                         size_t count, CUmemcpyAttributes* attributes,
                                         size_t* firsts, size_t attribute_count, size_t* fail_index,
                                         CUstream stream);
CUresult CUDAAPI cuMemcpyBatchAsync_v2_ptsz(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes,
                                            size_t count, CUmemcpyAttributes* attributes,
                                            size_t* firsts, size_t attribute_count,
                                            CUstream stream);

// One copy with attributes: CUDA 13.2.
CUresult CUDAAPI cuMemcpyWithAttributesAsync(CUdeviceptr dst, CUdeviceptr src, size_t bytes,
                                             CUmemcpyAttributes* attributes, CUstream stream);
CUresult CUDAAPI cuMemcpyWithAttributesAsync_ptsz(CUdeviceptr dst, CUdeviceptr src, size_t bytes,
                                                  CUmemcpyAttributes* attributes, CUstream stream);
using PFN_cuMemcpyWithAttributesAsync_v13020 = decltype(&cuMemcpyWithAttributesAsync);
using PFN_cuMemcpyWithAttributesAsync_v13020_ptsz = decltype(&cuMemcpyWithAttributesAsync_ptsz);

// Copies of rows and layers.
CUresult CUDAAPI cuMemcpy2D_v2_ptds(const CUDA_MEMCPY2D* params);
CUresult CUDAAPI cuMemcpy2DUnaligned_v2_ptds(const CUDA_MEMCPY2D* params);
CUresult CUDAAPI cuMemcpy2DAsync_v2_ptsz(const CUDA_MEMCPY2D* params, CUstream stream);
CUresult CUDAAPI cuMemcpy3D_v2_ptds(const CUDA_MEMCPY3D* params);
CUresult CUDAAPI cuMemcpy3DAsync_v2_ptsz(const CUDA_MEMCPY3D* params, CUstream stream);
CUresult CUDAAPI cuMemcpy3DPeer_ptds(const CUDA_MEMCPY3D_PEER* params);
CUresult CUDAAPI cuMemcpy3DPeerAsync_ptsz(const CUDA_MEMCPY3D_PEER* params, CUstream stream);
}
#pragma GCC visibility pop
