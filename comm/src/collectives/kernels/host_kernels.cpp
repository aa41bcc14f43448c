// The twins of the collectives' kernels (simt/host_kernels.hpp): their sources, compiled for the
// host.
#include "collectives/kernels/collectives_bfloat16.cu"
#include "collectives/kernels/collectives_bytes.cu"
#include "collectives/kernels/collectives_float16.cu"
#include "collectives/kernels/collectives_float32.cu"
#include "collectives/kernels/collectives_float64.cu"
#include "collectives/kernels/collectives_int32.cu"
#include "collectives/kernels/collectives_int64.cu"
#include "collectives/kernels/collectives_int8.cu"
