// The twin of the kernel of waits (simt/twins.hpp): its source, compiled for the host.
#include "comm/kernels/stream_wait.cu"
