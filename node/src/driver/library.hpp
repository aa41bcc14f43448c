// Opening a shared library and looking up its symbols.
#pragma once

#include <dlfcn.h>

#include <string>

namespace polypath {

/// Opens a library that stays loaded until the end; null with the loader's reason in `*why`.
inline void* open_library(const std::string& name, std::string* why) {
  void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr && why != nullptr) {
    const char* reason = dlerror();
    *why = reason != nullptr ? reason : "cannot open " + name;
  }
  return handle;
}

template <typename Function>
Function find_symbol(void* handle, const char* name) {
  return reinterpret_cast<Function>(dlsym(handle, name));
}

}  // namespace polypath
