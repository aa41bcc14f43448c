#include "preload/loaded_objects.hpp"

#include <dlfcn.h>

#include <cstdint>
#include <cstring>

namespace polypath::preload {
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
  explicit SymbolTables(const link_map& object) noexcept : base_(object.l_addr) {
    for (const ElfW(Dyn)* entry = object.l_ld; entry != nullptr && entry->d_tag != DT_NULL;
         ++entry) {
      switch (entry->d_tag) {
        case DT_SYMTAB: symbols_ = at<ElfW(Sym)>(*entry); break;
        case DT_STRTAB: strings_ = at<char>(*entry); break;
        case DT_GNU_HASH: gnu_hash_ = at<std::uint32_t>(*entry); break;
        case DT_HASH: hash_ = at<std::uint32_t>(*entry); break;
        case DT_VERSYM: versions_ = at<std::uint16_t>(*entry); break;
        default: break;  // dozens of others
      }
    }
  }

  [[nodiscard]] bool define(const char* name) const noexcept {
    if (symbols_ == nullptr || strings_ == nullptr) return false;
    return gnu_hash_ != nullptr ? define_by_gnu_hash(name) : define_by_hash(name);
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
  const ElfW(Sym) * symbols_ = nullptr;
  const char* strings_ = nullptr;
  const std::uint32_t* gnu_hash_ = nullptr;
  const std::uint32_t* hash_ = nullptr;
  const std::uint16_t* versions_ = nullptr;
};

}  // namespace

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
  return SymbolTables(object).define(name);
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

}  // namespace polypath::preload
