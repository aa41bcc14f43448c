#include "gate/polypath_api.hpp"

#include <dlfcn.h>
#include <limits.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "gate/loaded_objects.hpp"

namespace polypath::gate {

bool PolypathApi::has_copies() const noexcept {
#define POLYPATH_IS_THERE(name) name != nullptr&&
  return POLYPATH_COPY_FUNCTIONS(POLYPATH_IS_THERE) true;
}

bool PolypathApi::has_collectives() const noexcept {
  return POLYPATH_COMM_FUNCTIONS(POLYPATH_IS_THERE) true;
#undef POLYPATH_IS_THERE
}

void* open_polypath(Folder folder, int flags) noexcept {
  Dl_info info;
  char own[PATH_MAX];
  if (dladdr(reinterpret_cast<const void*>(&open_polypath), &info) == 0) return nullptr;
  const char* const file =
      folder == Folder::resolved ? realpath(info.dli_fname, own) : info.dli_fname;
  if (file == nullptr) return nullptr;
  const char* const slash = std::strrchr(file, '/');
  const int length = slash != nullptr ? static_cast<int>(slash - file) : 1;
  for (const char* name : {"libpolypath.so.0", "libpolypath.so"}) {
    char path[PATH_MAX];
    const int written =
        std::snprintf(path, sizeof path, "%.*s/%s", length, slash != nullptr ? file : ".", name);
    if (written < 0 || static_cast<std::size_t>(written) >= sizeof path) continue;
    if (void* const library = dlopen(path, flags)) return library;
  }
  return nullptr;
}

PolypathApi find_functions(void* library) noexcept {
  PolypathApi api;
#define POLYPATH_FIND(name) \
  api.name = reinterpret_cast<decltype(api.name)>(real_dlsym()(library, "polypath_" #name));
  POLYPATH_COPY_FUNCTIONS(POLYPATH_FIND)
  POLYPATH_COMM_FUNCTIONS(POLYPATH_FIND)
#undef POLYPATH_FIND
  return api;
}

}  // namespace polypath::gate
