#include "elf_file.hpp"

#include <elf.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace polypath::preload::test {
namespace {

class Reader {
 public:
  explicit Reader(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    // At once: character by character a sanitizer's build takes seconds for each of its libraries.
    bytes_.resize(file ? std::filesystem::file_size(path) : 0);
    file.read(bytes_.data(), static_cast<std::streamsize>(bytes_.size()));
    if (bytes_.size() < sizeof(Elf64_Ehdr) || std::memcmp(bytes_.data(), ELFMAG, SELFMAG) != 0)
      throw std::runtime_error("no ELF file: " + path);
  }

  template <typename T>
  [[nodiscard]] std::vector<T> table(std::uint64_t offset, std::uint64_t size) const {
    std::vector<T> entries(size / sizeof(T));
    if (offset + size > bytes_.size()) throw std::runtime_error("an ELF table lies outside");
    std::memcpy(entries.data(), bytes_.data() + offset, entries.size() * sizeof(T));
    return entries;
  }
  [[nodiscard]] std::string text(const Elf64_Shdr& strings, std::uint64_t index) const {
    return bytes_.data() + strings.sh_offset + index;
  }

 private:
  std::vector<char> bytes_;
};

}  // namespace

ElfFile read_elf(const std::string& path) {
  const Reader reader(path);
  const auto header = reader.table<Elf64_Ehdr>(0, sizeof(Elf64_Ehdr)).front();
  const auto sections =
      reader.table<Elf64_Shdr>(header.e_shoff, std::uint64_t{header.e_shnum} * header.e_shentsize);
  ElfFile file;
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_type == SHT_DYNAMIC) {
      for (const auto& entry : reader.table<Elf64_Dyn>(section.sh_offset, section.sh_size))
        if (entry.d_tag == DT_NEEDED)
          file.needed.push_back(reader.text(sections[section.sh_link], entry.d_un.d_val));
    } else if (section.sh_type == SHT_DYNSYM) {
      for (const auto& symbol : reader.table<Elf64_Sym>(section.sh_offset, section.sh_size))
        if (symbol.st_shndx != SHN_UNDEF && symbol.st_shndx != SHN_ABS &&
            ELF64_ST_BIND(symbol.st_info) != STB_LOCAL)
          file.exported.insert(reader.text(sections[section.sh_link], symbol.st_name));
    }
  }
  if (file.needed.empty() && file.exported.empty())
    throw std::runtime_error("no dynamic section: " + path);
  return file;
}

}  // namespace polypath::preload::test
