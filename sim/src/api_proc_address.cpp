// cuGetProcAddress: entry points by name and CUDA version, as libcudart asks for them.
//
// A name is known without its suffix (cuMemAlloc, not cuMemAlloc_v2). Of its versions the newest
// one that the wanted CUDA version already had is given out: of the per-thread forms if the flags
// ask for those and the name has any, otherwise of the others. docs/cuda-notes.md says what a GPU's
// driver answers.
#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>

#include "call.hpp"

namespace polypath::sim {
namespace {

// Functions that this driver pretends not to have, as older drivers do (POLYPATH_SIM_WITHOUT).

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

/// Takes the name out of this library's symbols: dlsym passes over entries that are not defined.
/// False when there is no such name.
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

/// True for the exported names that the variable lists, separated by commas. It is read once, when
/// the library is loaded; from then on dlsym does not find these names.
bool is_absent(std::string_view symbol) { return names().contains(symbol); }

}  // namespace
}  // namespace polypath::sim

using namespace polypath::sim;

namespace {

struct Entry {
  std::string_view name;
  std::string_view symbol;
  void* function;
  int version;
  bool is_per_thread;
};

// The header says which versions there are, and their types.
#define POLYPATH_PROC(name, suffix, version, thread) \
  static_assert(std::is_same_v<decltype(&name##suffix), PFN_##name##_v##version##thread>);
#include "proc_addresses.def"

const Entry kEntries[] = {
#define POLYPATH_PROC(name, suffix, version, thread) \
  {#name, #name #suffix, std::bit_cast<void*>(&name##suffix), version, sizeof(#thread) > 1},
#include "proc_addresses.def"
};

constexpr cuuint64_t kFlags =
    CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;

constexpr int kNewest = -1;  // as a version: this driver's newest

struct Answer {
  void* function;
  CUdriverProcAddressQueryResult status;
};

Answer find(std::string_view name, int version, bool wants_per_thread) {
  const auto is_named = [name](const Entry& entry) {
    return entry.name == name && !is_absent(entry.symbol);
  };
  if (std::ranges::none_of(kEntries, is_named))
    return {nullptr, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND};
  // No version of the legacy form stands in for a per-thread one that is newer than the wanted
  // version.
  const bool is_per_thread =
      wants_per_thread && std::ranges::any_of(kEntries, [&](const Entry& entry) {
        return is_named(entry) && entry.is_per_thread;
      });
  const Entry* newest = nullptr;
  for (const Entry& entry : kEntries) {
    if (!is_named(entry) || entry.is_per_thread != is_per_thread) continue;
    if (version != kNewest && entry.version > version) continue;
    if (newest == nullptr || entry.version > newest->version) newest = &entry;
  }
  if (newest == nullptr) return {nullptr, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT};
  return {newest->function, CU_GET_PROC_ADDRESS_SUCCESS};
}

/// Failure INVALID_VALUE for what neither version of the function looks for.
Answer ask(const char* name, int version, cuuint64_t flags) {
  require(name != nullptr && (flags & ~kFlags) == 0 && version <= kCudaVersion,
          CUDA_ERROR_INVALID_VALUE);
  return find(name, version, (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0);
}

}  // namespace

CUresult cuGetProcAddress(const char* symbol, void** function, int version, cuuint64_t flags) {
  return guarded([&] {
    const Answer answer = ask(symbol, version, flags);
    void*& result = out(function);
    require(answer.status == CU_GET_PROC_ADDRESS_SUCCESS, CUDA_ERROR_NOT_FOUND);
    result = answer.function;
  });
}

// What is not found is a success here, whether or not the caller wants the status.
CUresult cuGetProcAddress_v2(const char* symbol, void** function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* status) {
  return guarded([&] {
    const Answer answer = ask(symbol, version, flags);
    out(function) = answer.function;
    if (status != nullptr) *status = answer.status;
  });
}
