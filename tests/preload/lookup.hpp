// dlsym() as it is for others (lookup.cpp).
#pragma once

#include <dlfcn.h>

#include <string>

extern "C" {
/// As any library has it that the program was started with.
void* look_up_in_library(void* handle, const char* name);
/// As one of this project's libraries has it: past the shim.
void* look_up_past_shim(void* handle, const char* name);
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
