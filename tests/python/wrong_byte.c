/* Preloaded into programs to see that they notice: a copy of at least 100 bytes between devices, as UCX
 * makes it, leaves its 79th byte from the end as it was. */
#include <dlfcn.h>
#include <stddef.h>

typedef unsigned long long address;
typedef int (*copy_function)(address dst, address src, size_t bytes, void* stream);

int cuMemcpyDtoDAsync_v2(address dst, address src, size_t bytes, void* stream) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  copy_function copy = (copy_function)dlsym(driver, "cuMemcpyDtoDAsync_v2");
  if (bytes < 100) return copy(dst, src, bytes, stream);
  const size_t before = bytes - 79;
  const int result = copy(dst, src, before, stream);
  return result != 0 ? result : copy(dst + before + 1, src + before + 1, 78, stream);
}
