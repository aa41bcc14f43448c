// A library that wraps one of the driver's functions, as profilers do: it counts, and calls the
// next in line. Built under two names.
#include <cuda.h>
#include <dlfcn.h>

extern "C" {
[[gnu::visibility("default")]] int WRAPPER_CALLS = 0;

[[gnu::visibility("default")]] void* WRAPPER_NEXT() {
  void* const next = dlsym(RTLD_NEXT, "cuMemcpyAsync");
  asm volatile("" ::: "memory");  // the call above must come from here, and not be a jump
  return next;
}

[[gnu::visibility("default")]] CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src,
                                                      size_t bytes, CUstream stream) {
  ++WRAPPER_CALLS;
  return reinterpret_cast<decltype(&cuMemcpyAsync)>(WRAPPER_NEXT())(dst, src, bytes, stream);
}
}
