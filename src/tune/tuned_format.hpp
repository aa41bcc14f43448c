// A tuned choice as a table of the profile: profile.hpp shows one.
#pragma once

#include <string>

#include "plan/tuned_choice.hpp"
#include "topology/toml_table.hpp"

namespace polypath {

/// The [[tuned]] table, ended by a newline.
std::string format_tuned(const TunedChoice& choice);

/// Reads one. Throws InvalidArgument with file, line and the allowed values.
TunedChoice read_tuned(TomlTable& table);

}  // namespace polypath
