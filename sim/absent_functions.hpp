// Functions that this driver pretends not to have, as older drivers do (POLYPATH_SIM_WITHOUT).
#pragma once

#include <string_view>

namespace polypath::sim {

/// True for the exported names that the variable lists, separated by commas. It is read once, when the
/// library is loaded; from then on dlsym does not find these names.
bool is_absent(std::string_view symbol);

}  // namespace polypath::sim
