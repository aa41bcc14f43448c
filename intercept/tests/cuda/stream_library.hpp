// What a library does that makes streams and copies on them, as the CUDA transports of UCX do.
// Every library of stream_library.cpp has it; they differ in what else they refer to.
#pragma once

#include <cuda.h>
#include <dlfcn.h>

namespace polypath::preload::test {

struct StreamLibrary {
  decltype(&cuStreamCreate) make;
  CUresult (*make_with_priority)(CUstream*, unsigned, int);
  decltype(&cuStreamDestroy) destroy;
  CUresult (*copy)(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream);
  /// Records an event of the library.
  CUresult (*record)(CUstream stream);
  /// On an event that was recorded on another stream.
  CUresult (*wait)(CUstream stream);
  CUresult (*call_back)(CUstream stream);
  /// As dlsym() and cuGetProcAddress have it.
  void* (*look_up)(const char* name);
  void* (*ask)(const char* name);
};

/// Opened as a module is. Null: dlerror() says why.
inline const StreamLibrary* open_stream_library(const char* path) {
  void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return nullptr;
  return reinterpret_cast<const StreamLibrary* (*)()>(dlsym(library, "stream_library"))();
}

}  // namespace polypath::preload::test
