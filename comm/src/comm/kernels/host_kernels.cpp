// The twin of the kernel of waits (simt/host_kernels.hpp): its source, compiled for the host.
#include "comm/kernels/stream_wait.cu"
