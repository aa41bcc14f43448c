/* One transfer from GPU 0 to GPU 1 over every path, from C.
 *
 *   cc copy.c $(pkg-config --cflags --libs polypath) -lcuda -o copy && ./copy
 *
 * Without a GPU: link -lpolypath_sim, the simulated driver, in place of -lcuda, and run with
 * POLYPATH_NODE=narval. */
#include <cuda.h>
#include <polypath/polypath.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES ((size_t)64 << 20)

static void cuda(CUresult result, const char* what) {
  const char* name = "unknown error";
  if (result == CUDA_SUCCESS) return;
  cuGetErrorName(result, &name);
  fprintf(stderr, "%s: %s\n", what, name);
  exit(1);
}

static void polypath(polypath_status status, const char* what) {
  if (status == POLYPATH_SUCCESS) return;
  fprintf(stderr, "%s: %s: %s\n", what, polypath_status_name(status), polypath_last_error());
  exit(1);
}

static CUdeviceptr allocate(int gpu, CUcontext* context) {
  CUdevice device;
  CUdeviceptr memory;
  cuda(cuDeviceGet(&device, gpu), "cuDeviceGet");
  cuda(cuDevicePrimaryCtxRetain(context, device), "cuDevicePrimaryCtxRetain");
  cuda(cuCtxSetCurrent(*context), "cuCtxSetCurrent");
  cuda(cuMemAlloc(&memory, BYTES), "cuMemAlloc");
  return memory;
}

int main(void) {
  const polypath_transfer_request request = {"gpu0", "gpu1", BYTES};
  polypath_context* context;
  CUcontext on_gpu0, on_gpu1;
  CUdeviceptr src, dst;
  CUstream stream;
  char* counters;
  unsigned char* sent = malloc(BYTES);
  unsigned char* received = calloc(BYTES, 1);
  size_t i;
  if (sent == NULL || received == NULL) return 1;
  for (i = 0; i < BYTES; ++i) sent[i] = (unsigned char)rand();

  cuda(cuInit(0), "cuInit");
  dst = allocate(1, &on_gpu1);
  src = allocate(0, &on_gpu0); /* GPU 0 stays current */
  cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  cuda(cuMemcpyAsync(src, (CUdeviceptr)(size_t)sent, BYTES, stream), "cuMemcpyAsync");

  polypath(polypath_context_create(NULL, 0, &context), "polypath_context_create");
  /* Optional: else the first transfers go without staged routes until these are ready. */
  polypath(polypath_prepare(context, &request, 1), "polypath_prepare");
  polypath(polypath_copy_async(context, (void*)(size_t)dst, (void*)(size_t)src, BYTES, stream),
           "polypath_copy_async");
  cuda(cuStreamSynchronize(stream), "cuStreamSynchronize");

  cuda(cuMemcpy((CUdeviceptr)(size_t)received, dst, BYTES), "cuMemcpy");
  if (memcmp(sent, received, BYTES) != 0) {
    fprintf(stderr, "the bytes differ\n");
    return 1;
  }
  polypath(polypath_counters(context, &counters), "polypath_counters");
  puts(counters);
  polypath_free_string(counters);

  polypath_context_destroy(context);
  cuda(cuStreamDestroy(stream), "cuStreamDestroy");
  cuda(cuMemFree(src), "cuMemFree");
  cuda(cuMemFree(dst), "cuMemFree");
  cuda(cuDevicePrimaryCtxRelease(0), "cuDevicePrimaryCtxRelease");
  cuda(cuDevicePrimaryCtxRelease(1), "cuDevicePrimaryCtxRelease");
  free(received);
  free(sent);
  return 0;
}
