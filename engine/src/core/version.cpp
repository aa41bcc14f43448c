#include "core/version.hpp"

#include "polypath/polypath.h"

#define POLYPATH_TEXT_OF(x) #x
#define POLYPATH_TEXT(x) POLYPATH_TEXT_OF(x)

namespace polypath {

const char* version() noexcept {
  return POLYPATH_TEXT(POLYPATH_VERSION_MAJOR) "." POLYPATH_TEXT(
      POLYPATH_VERSION_MINOR) "." POLYPATH_TEXT(POLYPATH_VERSION_PATCH);
}

}  // namespace polypath
