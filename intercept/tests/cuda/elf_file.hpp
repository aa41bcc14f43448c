// What a shared library's file says: which others it needs, and what it exports.
#pragma once

#include <set>
#include <string>
#include <vector>

namespace polypath::preload::test {

struct ElfFile {
  std::vector<std::string> needed;
  std::set<std::string> exported;  ///< defined and visible, without versions
};

/// Throws std::runtime_error when it is no 64-bit ELF file with a dynamic section.
ElfFile read_elf(const std::string& path);

}  // namespace polypath::preload::test
