// In the place of the CUDA driver (POLYPATH_DRIVER_LIBRARY): passes everything on to the simulated
// one, and counts what a communicator of polypath's should take once a process.
#include <cuda.h>
#include <dlfcn.h>

#include <atomic>
#include <cstddef>

namespace {

std::atomic<std::size_t> modules{0};
std::atomic<std::size_t> pinned_bytes{0};
std::atomic<std::size_t> frees{0};

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))
#define TEXT_OF(name) #name
#define NAME_OF(function) TEXT_OF(function)
/// The simulated driver's.
#define ORIGINAL(function) \
  reinterpret_cast<decltype(&(function))>(dlsym(RTLD_NEXT, NAME_OF(function)))

EXPORTED std::size_t polypath_test_modules() { return modules; }
EXPORTED std::size_t polypath_test_pinned_bytes() { return pinned_bytes; }
EXPORTED std::size_t polypath_test_frees() { return frees; }

EXPORTED CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  ++modules;
  static const auto original = ORIGINAL(cuModuleLoadData);
  return original(module, image);
}

EXPORTED CUresult cuMemHostAlloc(void** address, std::size_t bytes, unsigned flags) {
  pinned_bytes += bytes;
  static const auto original = ORIGINAL(cuMemHostAlloc);
  return original(address, bytes, flags);
}

EXPORTED CUresult cuMemHostRegister(void* address, std::size_t bytes, unsigned flags) {
  pinned_bytes += bytes;
  static const auto original = ORIGINAL(cuMemHostRegister);
  return original(address, bytes, flags);
}

EXPORTED CUresult cuMemFree(CUdeviceptr address) {
  ++frees;
  static const auto original = ORIGINAL(cuMemFree);
  return original(address);
}
