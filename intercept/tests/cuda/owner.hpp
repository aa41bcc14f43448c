// Whose function an address is.
#pragma once

#include <dlfcn.h>

#include <filesystem>
#include <ostream>
#include <string>

namespace polypath::preload::test {

struct Owner {
  std::string library;  ///< the file's name, without folder and version numbers
  std::string function;

  bool operator==(const Owner&) const = default;
};

inline std::ostream& operator<<(std::ostream& out, const Owner& owner) {
  return out << owner.library << ':' << owner.function;
}

inline constexpr const char* kShim = "libpolypath_preload";
inline constexpr const char* kDriver = "libpolypath_sim";

/// Both empty for an address that no library has.
inline Owner owner_of(const void* address) {
  Dl_info info{};
  if (address == nullptr || dladdr(address, &info) == 0) return {};
  const std::string file = std::filesystem::path(info.dli_fname).filename().string();
  return {file.substr(0, file.find(".so")), info.dli_sname != nullptr ? info.dli_sname : ""};
}

}  // namespace polypath::preload::test
