// The kernels of this folder on the host, for a simulated driver (CMakeLists.txt).
#include "active_bench.cuh"
#include "channel_bench.cuh"
#include "collectives_bench.cuh"
#include "limits_bench.cuh"
#include "pool_bench.cuh"
#include "queue_bench.cuh"
#include "remote_bench.cuh"
