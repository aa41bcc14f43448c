// The twins of the kernels of matching (simt/host_kernels.hpp): their sources, compiled for the
// host.
#include "messaging/kernels/matching_hashed.cu"
#include "messaging/kernels/matching_mpi.cu"
#include "messaging/kernels/matching_partitioned.cu"
