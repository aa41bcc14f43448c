// A library that looks names up: what is found depends on the caller, by its name and its place
// among the loaded objects. Built under several names.
#include <cuda.h>
#include <dlfcn.h>

extern "C" [[gnu::visibility("default")]] void* LOOK_UP(void* handle, const char* name) {
  void* const symbol = dlsym(handle, name);
  asm volatile("" ::: "memory");  // the call above must come from here, and not be a jump
  return symbol;
}

/// cuGetProcAddress as this library has it; null when the driver finds nothing.
extern "C" [[gnu::visibility("default")]] void* ASK(decltype(&cuGetProcAddress_v2) driver,
                                                    const char* name, int version) {
  void* function = nullptr;
  return driver(name, &function, version, 0, nullptr) == CUDA_SUCCESS ? function : nullptr;
}
