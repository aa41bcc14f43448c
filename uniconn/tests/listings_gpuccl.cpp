#include "listing_4.hpp"
#include "polypath/uniconn/backend/gpuccl.hpp"

namespace polypath::test {

POLYPATH_LISTINGS_OF(GpucclBackend);

}  // namespace polypath::test
