#include "gate/loaded_objects.hpp"

#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <initializer_list>

namespace polypath::gate {
namespace {

const link_map* last_at_start = nullptr;

/// Runs when all objects of the process's start are mapped. Another's initialiser may have opened
/// more.
[[gnu::constructor]] void remember_start() {
  last_at_start = object_of(reinterpret_cast<const void*>(&remember_start));
  while (last_at_start != nullptr && last_at_start->l_next != nullptr)
    last_at_start = last_at_start->l_next;
}

/// The symbol tables of one object, by its dynamic section.
class SymbolTables {
 public:
  SymbolTables(ElfW(Addr) base, const ElfW(Dyn) * dynamic) noexcept
      : base_(base), dynamic_(dynamic) {
    for (const ElfW(Dyn)* entry = dynamic; entry != nullptr && entry->d_tag != DT_NULL; ++entry) {
      switch (entry->d_tag) {
        case DT_SYMTAB: symbols_ = at<ElfW(Sym)>(*entry); break;
        case DT_STRTAB: strings_ = at<char>(*entry); break;
        case DT_GNU_HASH: gnu_hash_ = at<std::uint32_t>(*entry); break;
        case DT_HASH: hash_ = at<std::uint32_t>(*entry); break;
        case DT_VERSYM: versions_ = at<std::uint16_t>(*entry); break;
        case DT_SONAME: soname_ = entry->d_un.d_val; break;
        case DT_RELA: relocations_[0] = at<ElfW(Rela)>(*entry); break;
        case DT_RELASZ: relocation_bytes_[0] = entry->d_un.d_val; break;
        case DT_JMPREL: relocations_[1] = at<ElfW(Rela)>(*entry); break;
        case DT_PLTRELSZ: relocation_bytes_[1] = entry->d_un.d_val; break;
        default: break;  // dozens of others
      }
    }
  }

  [[nodiscard]] bool define(const char* name) const noexcept {
    if (symbols_ == nullptr || strings_ == nullptr) return false;
    return gnu_hash_ != nullptr ? define_by_gnu_hash(name) : define_by_hash(name);
  }

  /// Null where it has none.
  [[nodiscard]] const char* soname() const noexcept {
    return soname_ != 0 && strings_ != nullptr ? strings_ + soname_ : nullptr;
  }

  [[nodiscard]] bool need(const char* name) const noexcept {
    for (const ElfW(Dyn)* entry = dynamic_; entry != nullptr && entry->d_tag != DT_NULL; ++entry)
      if (entry->d_tag == DT_NEEDED && std::strcmp(strings_ + entry->d_un.d_val, name) == 0)
        return true;
    return false;
  }

  /// A name that nothing in the object refers to is bound to nothing.
  [[nodiscard]] bool all_references(bool (*accepts)(const char* name, void* user),
                                    void* user) const noexcept {
    for (std::size_t table = 0; table < 2; ++table) {
      const std::size_t count = relocation_bytes_[table] / sizeof(ElfW(Rela));
      for (std::size_t i = 0; i < count; ++i) {
        const std::size_t index = ELF64_R_SYM(relocations_[table][i].r_info);
        if (index == 0 || symbols_[index].st_shndx != SHN_UNDEF) continue;
        if (!accepts(strings_ + symbols_[index].st_name, user)) return false;
      }
    }
    return true;
  }

 private:
  /// The loader has relocated these addresses, but not in every object.
  template <typename T>
  const T* at(const ElfW(Dyn) & entry) const noexcept {
    const ElfW(Addr) address = entry.d_un.d_ptr;
    return reinterpret_cast<const T*>(address < base_ ? address + base_ : address);
  }

  [[nodiscard]] bool is_definition(std::uint32_t index, const char* name) const noexcept {
    constexpr std::uint16_t kHidden = 0x8000;
    const ElfW(Sym) & symbol = symbols_[index];
    if (symbol.st_shndx == SHN_UNDEF || std::strcmp(strings_ + symbol.st_name, name) != 0)
      return false;
    return versions_ == nullptr || (versions_[index] & kHidden) == 0;
  }

  [[nodiscard]] bool define_by_gnu_hash(const char* name) const noexcept {
    std::uint32_t hash = 5381;
    for (const char* c = name; *c != '\0'; ++c) hash = hash * 33 + static_cast<unsigned char>(*c);
    const std::uint32_t bucket_count = gnu_hash_[0];
    const std::uint32_t first_symbol = gnu_hash_[1];
    const std::uint32_t filter_words = gnu_hash_[2];
    if (bucket_count == 0) return false;
    const std::uint32_t* const buckets =
        gnu_hash_ + 4 + filter_words * (sizeof(ElfW(Addr)) / sizeof(std::uint32_t));
    const std::uint32_t* const chain = buckets + bucket_count;
    std::uint32_t index = buckets[hash % bucket_count];
    if (index < first_symbol) return false;
    for (;; ++index) {
      const std::uint32_t entry = chain[index - first_symbol];
      if ((entry | 1) == (hash | 1) && is_definition(index, name)) return true;
      if ((entry & 1) != 0) return false;
    }
  }

  [[nodiscard]] bool define_by_hash(const char* name) const noexcept {
    if (hash_ == nullptr) return false;
    const std::uint32_t count = hash_[1];
    for (std::uint32_t index = 0; index < count; ++index)
      if (is_definition(index, name)) return true;
    return false;
  }

  ElfW(Addr) base_;
  const ElfW(Dyn) * dynamic_;
  std::size_t soname_ = 0;
  const ElfW(Rela) * relocations_[2] = {};
  std::size_t relocation_bytes_[2] = {};
  const ElfW(Sym) * symbols_ = nullptr;
  const char* strings_ = nullptr;
  const std::uint32_t* gnu_hash_ = nullptr;
  const std::uint32_t* hash_ = nullptr;
  const std::uint16_t* versions_ = nullptr;
};

}  // namespace

Dlsym real_dlsym() noexcept {
  static constinit std::atomic<Dlsym> known{nullptr};
  Dlsym function = known.load(std::memory_order_acquire);
  // With a version another replaced dlsym, which has none, is passed over.
  for (const char* version : {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"}) {
    if (function != nullptr) return function;
    function = reinterpret_cast<Dlsym>(dlvsym(RTLD_NEXT, "dlsym", version));
    known.store(function, std::memory_order_release);
  }
  return function;
}

const link_map* object_of(const void* address) noexcept {
  Dl_info info;
  void* object = nullptr;
  return dladdr1(address, &info, &object, RTLD_DL_LINKMAP) != 0
             ? static_cast<const link_map*>(object)
             : nullptr;
}

bool is_polypath(const link_map* object) noexcept {
  constexpr char kPrefix[] = "libpolypath";
  if (object == nullptr) return false;
  const char* const slash = std::strrchr(object->l_name, '/');
  const char* const file = slash != nullptr ? slash + 1 : object->l_name;
  return std::strncmp(file, kPrefix, sizeof kPrefix - 1) == 0;
}

bool defines(const link_map& object, const char* name) noexcept {
  return SymbolTables(object.l_addr, object.l_ld).define(name);
}

bool LoadedObject::is_library() const noexcept {
  return info_.dlpi_name != nullptr && *info_.dlpi_name != '\0';
}

bool LoadedObject::holds(const void* address) const noexcept {
  const auto at = reinterpret_cast<ElfW(Addr)>(address) - info_.dlpi_addr;
  for (std::size_t i = 0; i < info_.dlpi_phnum; ++i) {
    const ElfW(Phdr) & segment = info_.dlpi_phdr[i];
    if (segment.p_type == PT_LOAD && at >= segment.p_vaddr &&
        at - segment.p_vaddr < segment.p_memsz)
      return true;
  }
  return false;
}

const ElfW(Dyn) * LoadedObject::dynamic() const noexcept {
  for (std::size_t i = 0; i < info_.dlpi_phnum; ++i)
    if (info_.dlpi_phdr[i].p_type == PT_DYNAMIC)
      return reinterpret_cast<const ElfW(Dyn)*>(info_.dlpi_addr + info_.dlpi_phdr[i].p_vaddr);
  return nullptr;
}

bool LoadedObject::needs(const LoadedObject& other) const noexcept {
  const SymbolTables tables(info_.dlpi_addr, dynamic());
  const char* const soname = SymbolTables(other.info_.dlpi_addr, other.dynamic()).soname();
  const char* const slash = std::strrchr(other.info_.dlpi_name, '/');
  return (soname != nullptr && tables.need(soname)) || tables.need(other.info_.dlpi_name) ||
         (slash != nullptr && tables.need(slash + 1));
}

bool LoadedObject::all_references(bool (*accepts)(const char* name, void* user),
                                  void* user) const noexcept {
  return SymbolTables(info_.dlpi_addr, dynamic()).all_references(accepts, user);
}

StartupObjects::Iterator& StartupObjects::Iterator::operator++() noexcept {
  at_ = at_ == last_at_start ? nullptr : at_->l_next;
  return *this;
}

StartupObjects::Iterator StartupObjects::begin() const noexcept {
  const link_map* first = last_at_start;
  while (first != nullptr && first->l_prev != nullptr) first = first->l_prev;
  return Iterator(first);
}

}  // namespace polypath::gate
