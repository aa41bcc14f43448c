// The kernel of the device launch modes, for GPUs.
#include "jacobi2d.cuh"

extern "C" __global__ void __launch_bounds__(uniconn_example::kJacobiThreads,
                                             uniconn_example::kJacobiBlocksAtOnce)
    uniconn_jacobi2d(uniconn_example::JacobiLaunch launch) {
  uniconn_example::jacobi_sweep_and_send(launch);
}
