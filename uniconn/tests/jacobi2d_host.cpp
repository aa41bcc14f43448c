// The host build of examples/uniconn/jacobi2d_kernel.cu.
#include "../../examples/uniconn/jacobi2d.cuh"
#include "simt/platform.cuh"

SIMT_KERNEL(uniconn_jacobi2d, uniconn_example::kJacobiThreads,
            uniconn_example::JacobiLaunch launch) {
  uniconn_example::jacobi_sweep_and_send(launch);
}
SIMT_EMULATED_THREADS(uniconn_jacobi2d, 32);
