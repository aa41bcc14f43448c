/* A stand-in for NVIDIA's libcudart, which cannot run on the simulated driver: the few functions that tests
 * call, with the same names, arguments and numbers. It takes its driver functions as libcudart does: by
 * dlopen of libcuda.so.1, dlsym of cuGetProcAddress_v2, and from there on by cuGetProcAddress alone.
 *
 * Returns are 0, or the number of a CUDA error. The device is each thread's own, 0 at first.
 */
#ifndef POLYPATH_CUDART_STANDIN_H
#define POLYPATH_CUDART_STANDIN_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CUDART_STANDIN_API __attribute__((visibility("default")))

typedef struct CUstream_st* cudaStream_t;

enum cudaMemcpyKind {
  cudaMemcpyHostToHost = 0,
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3,
  cudaMemcpyDefault = 4 /* by the addresses */
};

CUDART_STANDIN_API int cudaGetDeviceCount(int* count);
CUDART_STANDIN_API int cudaSetDevice(int device);
CUDART_STANDIN_API int cudaGetDevice(int* device);
CUDART_STANDIN_API int cudaDeviceSynchronize(void);

CUDART_STANDIN_API int cudaMalloc(void** address, size_t bytes);
CUDART_STANDIN_API int cudaFree(void* address);
CUDART_STANDIN_API int cudaHostAlloc(void** address, size_t bytes, unsigned int flags);
CUDART_STANDIN_API int cudaFreeHost(void* address);

CUDART_STANDIN_API int cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags);
CUDART_STANDIN_API int cudaStreamDestroy(cudaStream_t stream);
CUDART_STANDIN_API int cudaStreamSynchronize(cudaStream_t stream);

CUDART_STANDIN_API int cudaMemcpy(void* dst, const void* src, size_t bytes,
                                  enum cudaMemcpyKind kind);
CUDART_STANDIN_API int cudaMemcpyAsync(void* dst, const void* src, size_t bytes,
                                       enum cudaMemcpyKind kind, cudaStream_t stream);
CUDART_STANDIN_API int cudaMemcpyPeerAsync(void* dst, int dst_device, const void* src,
                                           int src_device, size_t bytes, cudaStream_t stream);
/* As programs built with per-thread default streams call them: the stream 0 is the thread's own. */
CUDART_STANDIN_API int cudaMemcpy_ptds(void* dst, const void* src, size_t bytes,
                                       enum cudaMemcpyKind kind);
CUDART_STANDIN_API int cudaMemcpyAsync_ptsz(void* dst, const void* src, size_t bytes,
                                            enum cudaMemcpyKind kind, cudaStream_t stream);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* POLYPATH_CUDART_STANDIN_H */
