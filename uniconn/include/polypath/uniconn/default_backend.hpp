// What Environment, Communicator, Memory and Coordinator are of when a program does not say:
//
//   -DUNICONN_USE_MPI=1, -DUNICONN_USE_GPUCCL=1, -DUNICONN_USE_GPUSHMEM=1     the backend
//   -DUNICONN_USE_ANY=1                                                       chosen at run time
//   -DUNICONN_USE_LIMITED_DEVICE=1, -DUNICONN_USE_FULL_DEVICE=1                the launch mode
//
// Without them polypath's, from the host.
#pragma once

#if defined(UNICONN_USE_MPI) && UNICONN_USE_MPI
#include "polypath/uniconn/backend/mpi.hpp"
namespace polypath::uniconn {
using DefaultBackend = MPIBackend;
}
#elif defined(UNICONN_USE_GPUCCL) && UNICONN_USE_GPUCCL
#include "polypath/uniconn/backend/gpuccl.hpp"
namespace polypath::uniconn {
using DefaultBackend = GpucclBackend;
}
#elif defined(UNICONN_USE_GPUSHMEM) && UNICONN_USE_GPUSHMEM
#include "polypath/uniconn/backend/gpushmem.hpp"
namespace polypath::uniconn {
using DefaultBackend = GpushmemBackend;
}
#elif defined(UNICONN_USE_ANY) && UNICONN_USE_ANY
#include "polypath/uniconn/backend/any.hpp"
namespace polypath::uniconn {
using DefaultBackend = AnyBackend;
}
#else
#include "polypath/uniconn/backend/polypath.hpp"
namespace polypath::uniconn {
using DefaultBackend = PolypathBackend;
}
#endif

namespace polypath::uniconn {
#if defined(UNICONN_USE_FULL_DEVICE) && UNICONN_USE_FULL_DEVICE
inline constexpr LaunchMode DefaultLaunchMode = LaunchMode::PureDevice;
#elif defined(UNICONN_USE_LIMITED_DEVICE) && UNICONN_USE_LIMITED_DEVICE
inline constexpr LaunchMode DefaultLaunchMode = LaunchMode::PartialDevice;
#else
inline constexpr LaunchMode DefaultLaunchMode = LaunchMode::PureHost;
#endif
}  // namespace polypath::uniconn
