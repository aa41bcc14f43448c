// cuda.h and nvml.h, with every function visible: this library exports them. Where cuda.h renames a
// function by macro, both the old and the new name are exported, as the real driver does.
#pragma once

#pragma GCC visibility push(default)
#include <cuda.h>
#include <cudaTypedefs.h>
#include <nvml.h>

#undef cuCtxCreate
#undef cuEventElapsedTime
#undef cuGetProcAddress

extern "C" {
CUresult CUDAAPI cuCtxCreate_v2(CUcontext* context, unsigned int flags, CUdevice device);
CUresult CUDAAPI cuCtxCreate_v3(CUcontext* context, CUexecAffinityParam* affinity, int count,
                                unsigned int flags, CUdevice device);
CUresult CUDAAPI cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end);
CUresult CUDAAPI cuGetProcAddress(const char* symbol, void** function, int version,
                                  cuuint64_t flags);
}
#pragma GCC visibility pop
