#include "listing_4.hpp"
#include "polypath/uniconn/backend/gpushmem.hpp"

namespace polypath::test {

POLYPATH_LISTINGS_OF(GpushmemBackend);

}  // namespace polypath::test
