// A program that overrides dlsym for all of its process, as some profilers and memory limiters do.
// It passes every call on to the loader's, and says what it found of the driver; status 0 if a copy
// by that arrives.
#include <cuda.h>
#include <dlfcn.h>

#include <cstdio>
#include <vector>

namespace {

int asked = 0;

}  // namespace

extern "C" [[gnu::visibility("default")]] void* dlsym(void* handle, const char* name) noexcept {
  using Dlsym = void* (*)(void*, const char*);
  static const auto next = [] {
    void* symbol = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    if (symbol == nullptr) symbol = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    return reinterpret_cast<Dlsym>(symbol);
  }();
  ++asked;
  return next(handle, name);
}

int main() {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  const auto find = [&](auto* function, const char* name) {
    return reinterpret_cast<decltype(function)>(dlsym(driver, name));
  };
  constexpr std::size_t kBytes = 3 << 20;
  CUcontext context = nullptr;
  CUdeviceptr memory = 0;
  std::vector<unsigned char> sent(kBytes, 0xA7);
  std::vector<unsigned char> received(kBytes);
  if (find(&cuInit, "cuInit")(0) != CUDA_SUCCESS ||
      find(&cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain")(&context, 0) != CUDA_SUCCESS ||
      find(&cuCtxSetCurrent, "cuCtxSetCurrent")(context) != CUDA_SUCCESS ||
      find(&cuMemAlloc, "cuMemAlloc_v2")(&memory, kBytes) != CUDA_SUCCESS ||
      find(&cuMemcpyHtoD, "cuMemcpyHtoD_v2")(memory, sent.data(), kBytes) != CUDA_SUCCESS ||
      find(&cuMemcpyDtoH, "cuMemcpyDtoH_v2")(received.data(), memory, kBytes) != CUDA_SUCCESS)
    return 1;
  std::printf("asked %d times, %s\n", asked, sent == received ? "arrived" : "lost");
  return sent == received ? 0 : 2;
}
