// A library that looks names up: what is found depends on who asks, by its name and its place among the loaded
// objects. Built under several names.
#include <dlfcn.h>

extern "C" [[gnu::visibility("default")]] void* LOOK_UP(void* handle, const char* name) {
  void* const found = dlsym(handle, name);
  asm volatile("" ::: "memory");  // the call above is to come from here, and not to be a jump
  return found;
}
