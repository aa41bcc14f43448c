// The host build of examples/uniconn/cg_kernel.cu.
#include "../../examples/uniconn/cg.cuh"
#include "simt/platform.cuh"

SIMT_KERNEL(uniconn_cg, cg::kThreads, uniconn_example::CgLaunch launch) {
  uniconn_example::cg_step_and_send(launch);
}
