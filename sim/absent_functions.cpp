#include "absent_functions.hpp"

#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>

namespace polypath::sim {
namespace {

std::set<std::string, std::less<>> read_names() {
  std::set<std::string, std::less<>> names;
  const char* const value = std::getenv("POLYPATH_SIM_WITHOUT");
  std::string_view rest = value == nullptr ? "" : value;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find(','), rest.size());
    names.emplace(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return names;
}

const std::set<std::string, std::less<>>& names() {
  static const std::set<std::string, std::less<>> all = read_names();
  return all;
}

/// Takes the name out of this library's symbols: dlsym passes over entries that are not defined. False when
/// there is no such name.
bool remove_symbol(void* library, const std::string& name) {
  void* const address = ::dlsym(library, name.c_str());
  Dl_info info{};
  void* entry = nullptr;
  if (address == nullptr || ::dladdr1(address, &info, &entry, RTLD_DL_SYMENT) == 0 ||
      entry == nullptr || info.dli_sname == nullptr || name != info.dli_sname)
    return false;
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = std::bit_cast<std::uintptr_t>(entry) / page * page;
  const auto end = std::bit_cast<std::uintptr_t>(entry) + sizeof(ElfW(Sym));
  void* const pages = std::bit_cast<void*>(begin);
  if (::mprotect(pages, end - begin, PROT_READ | PROT_WRITE) != 0) return false;
  auto* const symbol = static_cast<ElfW(Sym)*>(entry);
  symbol->st_value = 0;
  symbol->st_shndx = SHN_UNDEF;
  ::mprotect(pages, end - begin, PROT_READ);
  return true;
}

[[gnu::constructor]] void remove_all() {
  if (names().empty()) return;
  static const char anchor = 0;
  Dl_info here{};
  if (::dladdr(&anchor, &here) == 0) return;
  void* const library = ::dlopen(here.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return;
  for (const std::string& name : names())
    if (!remove_symbol(library, name))
      std::fprintf(stderr, "polypath_sim: POLYPATH_SIM_WITHOUT: no function \"%s\"\n",
                   name.c_str());
  ::dlclose(library);
}

}  // namespace

bool is_absent(std::string_view symbol) { return names().contains(symbol); }

}  // namespace polypath::sim
