#include "listing_4.hpp"
#include "polypath/uniconn/backend/any.hpp"

namespace polypath::test {

// All modes compile: which can be had, the chosen library says at run time.
POLYPATH_LISTINGS_OF(AnyBackend);
template int listing_4<AnyBackend, LaunchMode::PartialDevice>(int, char**);
template int listing_4<AnyBackend, LaunchMode::PureDevice>(int, char**);

}  // namespace polypath::test
