#include "driver_entries.hpp"

#include <cudaTypedefs.h>
#include <dlfcn.h>

namespace polypath::cudart_standin {
namespace {

using GetProcAddress = PFN_cuGetProcAddress_v12000;

/// libcudart finds this one function by dlsym, and asks it for itself, too.
GetProcAddress find_get_proc_address() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return nullptr;
  const auto first = reinterpret_cast<GetProcAddress>(dlsym(library, "cuGetProcAddress_v2"));
  void* again = nullptr;
  CUdriverProcAddressQueryResult status{};
  if (first == nullptr || first("cuGetProcAddress", &again, 12000,
                                CU_GET_PROC_ADDRESS_LEGACY_STREAM, &status) != CUDA_SUCCESS)
    return nullptr;
  return reinterpret_cast<GetProcAddress>(again);
}

}  // namespace

void* driver_entry(const char* name, int version, DefaultStream default_stream) {
  static const GetProcAddress get_proc_address = find_get_proc_address();
  const cuuint64_t flags = default_stream == DefaultStream::per_thread
                               ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
                               : CU_GET_PROC_ADDRESS_LEGACY_STREAM;
  void* entry = nullptr;
  CUdriverProcAddressQueryResult status{};
  if (get_proc_address == nullptr ||
      get_proc_address(name, &entry, version, flags, &status) != CUDA_SUCCESS)
    return nullptr;
  return status == CU_GET_PROC_ADDRESS_SUCCESS ? entry : nullptr;
}

}  // namespace polypath::cudart_standin
