// A library that looks names up: what is found depends on who asks, by its name and its place among
// the loaded objects. Built under several names.
#include <cuda.h>
#include <dlfcn.h>

extern "C" [[gnu::visibility("default")]] void* LOOK_UP(void* handle, const char* name) {
  void* const found = dlsym(handle, name);
  asm volatile("" ::: "memory");  // the call above is to come from here, and not to be a jump
  return found;
}

/// cuGetProcAddress as this library has it; null when the driver finds nothing.
extern "C" [[gnu::visibility("default")]] void* ASK(decltype(&cuGetProcAddress_v2) driver,
                                                    const char* name, int version) {
  void* found = nullptr;
  return driver(name, &found, version, 0, nullptr) == CUDA_SUCCESS ? found : nullptr;
}
