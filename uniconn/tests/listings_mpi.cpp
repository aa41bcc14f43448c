#include "listing_4.hpp"
#include "polypath/uniconn/backend/mpi.hpp"

namespace polypath::test {

POLYPATH_LISTINGS_OF(MPIBackend);

template <typename B, LaunchMode M>
concept HasCoordinator = requires { typename Coordinator<B, M>; };
static_assert(HasCoordinator<MPIBackend, LaunchMode::PureHost>);
static_assert(!HasCoordinator<MPIBackend, LaunchMode::PartialDevice>);
static_assert(!HasCoordinator<MPIBackend, LaunchMode::PureDevice>);

}  // namespace polypath::test
