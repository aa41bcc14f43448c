// The counters of a context as lines for people.
#pragma once

#include <string>

#include "core/context.hpp"

namespace polypath {

/// Lines without an indent, each ended by a newline: transfers and bytes; what went natively, and
/// why; the routes with their share of the bytes of their pair; routes that plans had to do
/// without; graphs. Lines that would only say "none" are left out.
std::string report(Context& context);

}  // namespace polypath
