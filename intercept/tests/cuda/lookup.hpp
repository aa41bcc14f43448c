// dlsym() as it is for others (lookup.cpp).
#pragma once

#include <cuda.h>
#include <dlfcn.h>

#include <string>

extern "C" {
/// As any library has it that the program was started with.
void* look_up_in_library(void* handle, const char* name);
/// As one of this project's libraries has it: past the shim.
void* look_up_past_shim(void* handle, const char* name);

/// The driver's answer to the name at that CUDA version, as each of them is given it.
void* ask_in_library(decltype(&cuGetProcAddress_v2) driver, const char* name, int version);
void* ask_past_shim(decltype(&cuGetProcAddress_v2) driver, const char* name, int version);
}

namespace polypath::preload::test {

/// What dlsym() in vain says.
template <typename LookUp>
std::string error_of(LookUp&& look_up) {
  dlerror();
  if (look_up() != nullptr) return "found";
  const char* const error = dlerror();
  return error != nullptr ? error : "no error";
}

}  // namespace polypath::preload::test
