// The kernel of the device launch modes, for GPUs.
#include "cg.cuh"

extern "C" __global__ void __launch_bounds__(cg::kThreads, uniconn_example::kCgBlocksAtOnce)
    uniconn_cg(uniconn_example::CgLaunch launch) {
  uniconn_example::cg_step_and_send(launch);
}
