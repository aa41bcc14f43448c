// The shim's file: it needs nothing but libc, and exports what it replaces and nothing else.
#include <gtest/gtest.h>

#include "elf_file.hpp"
#include "mpi/library.hpp"
#include "replaced_names.hpp"

namespace polypath::preload::test {
namespace {

TEST(Library, NeedsNothingButLibc) {
  for (const std::string& library : read_elf(POLYPATH_SHIM).needed) {
    const std::string name = library.substr(0, library.find(".so"));
    EXPECT_TRUE(name == "libc" || name == "libdl" || name == "libpthread" || name == "libm" ||
                name.starts_with("ld-linux"))
        << library;
  }
}

TEST(Library, ExportsWhatItReplaces) {
  std::set<std::string> expected{"dlsym"};
  for (const ReplacedName& entry : kReplaced) expected.emplace(entry.name);
  for (const char* const name : mpi::kFunctionNames) expected.emplace(name);
  EXPECT_EQ(expected, read_elf(POLYPATH_SHIM).exported);
}

}  // namespace
}  // namespace polypath::preload::test
