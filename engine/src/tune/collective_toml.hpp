// The tables of tuned collectives of a profile (tune/profile.hpp). The ranks of a communicator send
// each other the same text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plan/tuned_collective.hpp"
#include "topology/toml_table.hpp"

namespace polypath {

/// The [[collective]] table, ended by a newline.
std::string format_collective(const TunedCollective& entry);

/// All of a file. Throws InvalidArgument with file, line and the allowed values.
std::vector<TunedCollective> read_collectives(TomlTable& whole);
/// From a text of format_collective(), among other tables.
std::vector<TunedCollective> read_collectives_text(std::string_view text);

}  // namespace polypath
