// UNICONN: one way to communicate from GPU to GPU over MPI, NCCL, NVSHMEM and polypath
// (docs/uniconn.md). polypath's backend is here; the others are backend/mpi.hpp,
// backend/gpuccl.hpp and backend/gpushmem.hpp; backend/any.hpp chooses among them at run time.
#pragma once

#include "polypath/uniconn/backend/polypath.hpp"
#include "polypath/uniconn/bootstrap.hpp"
#include "polypath/uniconn/communicator.hpp"
#include "polypath/uniconn/coordinator.hpp"
#include "polypath/uniconn/environment.hpp"
#include "polypath/uniconn/memory.hpp"
#include "polypath/uniconn/types.hpp"
