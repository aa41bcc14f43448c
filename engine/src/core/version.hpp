// The library's version, from the macros of polypath.h.
#pragma once

namespace polypath {

/// "0.1.0"
const char* version() noexcept;

}  // namespace polypath
