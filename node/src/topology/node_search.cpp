// Where node files lie: the functions of node_file.hpp that look for them.
#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "base/error.hpp"
#include "topology/node_file.hpp"

namespace polypath {
namespace {

constexpr const char* kExtension = ".toml";

/// The folder of the library or program that this code is part of.
std::filesystem::path own_folder() {
  Dl_info info{};
  std::error_code ignored;
  if (dladdr(reinterpret_cast<const void*>(&own_folder), &info) == 0 || info.dli_fname == nullptr)
    return std::filesystem::current_path(ignored);
  return std::filesystem::absolute(info.dli_fname, ignored).parent_path();
}

}  // namespace

std::vector<std::filesystem::path> node_directories() {
  std::vector<std::filesystem::path> all;
  const std::filesystem::path base = own_folder();
  for (const char* relative :
       {"nodes", "../share/polypath/nodes", "../nodes", "../../nodes", "../../../nodes"})
    all.push_back((base / relative).lexically_normal());
  return all;
}

std::vector<std::filesystem::path> known_node_files() {
  std::map<std::string, std::filesystem::path> by_name;
  std::error_code ignored;
  for (const std::filesystem::path& directory : node_directories())
    for (const auto& entry : std::filesystem::directory_iterator(directory, ignored))
      if (entry.path().extension() == kExtension)
        by_name.try_emplace(entry.path().stem().string(), entry.path());
  std::vector<std::filesystem::path> files;
  for (const auto& [name, path] : by_name) files.push_back(path);
  return files;
}

std::filesystem::path find_node_file(const std::string& name_or_path) {
  if (name_or_path.find('/') != std::string::npos || name_or_path.ends_with(kExtension)) {
    if (!std::filesystem::is_regular_file(name_or_path))
      throw InvalidArgument(fmt::format("there is no node file '{}'", name_or_path));
    return name_or_path;
  }
  std::vector<std::string> names;
  for (const std::filesystem::path& file : known_node_files()) {
    names.push_back(file.stem().string());
    if (names.back() == name_or_path) return file;
  }
  throw InvalidArgument(fmt::format("there is no node '{}'; known: {}, or a path to a node file",
                                    name_or_path, fmt::join(names, ", ")));
}

}  // namespace polypath
