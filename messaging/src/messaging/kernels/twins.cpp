// The twins of the kernels that prove paths (simt/host_kernels.hpp): their source, compiled for the
// host.
#include "messaging/kernels/ll128_probe.cu"
