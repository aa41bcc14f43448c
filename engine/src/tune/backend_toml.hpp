// The tables of measured backends of a profile (tune/profile.hpp).
#pragma once

#include <string>
#include <vector>

#include "plan/tuned_backend.hpp"
#include "topology/toml_table.hpp"

namespace polypath {

/// The [[comm]] table, ended by a newline.
std::string format_backend(const TunedBackend& entry);

/// All of a file. Throws InvalidArgument with file, line and the allowed values.
std::vector<TunedBackend> read_backends(TomlTable& whole);

}  // namespace polypath
