// Listings 4, 5 and 6 of the UNICONN paper in one file of a CUDA compiler, with the declarations
// that they leave out: the host's program, and its kernels of all three launch modes.
#include <cuda_runtime.h>

#include "polypath/uniconn/device/polypath.cuh"

using namespace polypath::uniconn;
using Backend = PolypathBackend;

__device__ void Compute_Row(float*, const float*, int) {}
__device__ void Compute_Domain(float*, const float*, int) {}
__device__ void Compute_Block(float*, const float*, int) {}

__global__ void jacobi_kernel(float* a_new, const float* a, int nx) { Compute_Block(a_new, a, nx); }

__global__ void jacobi_dev(float* a_new, const float* a, float* A_buf, float* Anew_buf, int nx,
                           uint64_t* sync_arr, int iter, int top, int bottom,
                           Communicator<Backend>* comm) {
  if (blockIdx.x == gridDim.x - 1) {
    Compute_Row(a_new, a, nx);
    Coordinator<Backend>::Post<ThreadGroup::BLOCK>(A_buf, Anew_buf, nx, sync_arr + 1, iter + 1, top,
                                                   comm);
    Coordinator<Backend>::Acknowledge<ThreadGroup::BLOCK>(Anew_buf + nx, nx, sync_arr, iter + 1,
                                                          top, comm);
  } else if (blockIdx.x == gridDim.x - 2) {
    Compute_Row(a_new, a, nx);
    Coordinator<Backend>::Post<ThreadGroup::BLOCK>(A_buf + nx, Anew_buf + nx, nx, sync_arr,
                                                   iter + 1, bottom, comm);
    Coordinator<Backend>::Acknowledge<ThreadGroup::BLOCK>(Anew_buf, nx, sync_arr + 1, iter + 1,
                                                          bottom, comm);
  } else {
    Compute_Domain(a_new, a, nx);
  }
}

__global__ void jacobi_p_dev(float* a_new, const float* a, float* A_buf, float* Anew_buf, int nx,
                             int offset1, int offset2, int top, int bottom,
                             Communicator<Backend>* comm) {
  Compute_Block(a_new, a, nx);
  int block_iy = blockIdx.y * blockDim.y + offset1;
  int block_ix = blockIdx.x * blockDim.x + 1;
  if ((nx - 1) > block_ix) {
    if ((block_iy <= offset1) && (offset1 < block_iy + static_cast<int>(blockDim.y))) {
      Coordinator<Backend>::Post<ThreadGroup::BLOCK>(
          A_buf + block_ix, Anew_buf + block_ix,
          min(static_cast<int>(blockDim.x), nx - 1 - block_ix), nullptr, 0, top, comm);
    }
    if ((offset2 < block_iy + static_cast<int>(blockDim.y)) && (block_iy <= offset2)) {
      Coordinator<Backend>::Post<ThreadGroup::BLOCK>(
          A_buf + nx + block_ix, Anew_buf + nx + block_ix,
          min(static_cast<int>(blockDim.x), nx - 1 - block_ix), nullptr, 0, bottom, comm);
    }
  }
}

// The paper's Communicator has these in kernels.
__global__ void of_the_communicator(int* out, Communicator<Backend>* comm) {
  comm->Barrier<ThreadGroup::BLOCK>();
  if (threadIdx.x == 0) {
    out[0] = comm->GlobalRank();
    out[1] = comm->GlobalSize();
  }
}

#if __cplusplus >= 202002L
template <LaunchMode X>
void listing_4(cudaStream_t stream, dim3 grid, dim3 block, void** args, Communicator<Backend>& comm,
               float* A_buf, float* Anew_buf, uint64_t* sync_arr, size_t nx, int top) {
  Coordinator<Backend, X> jacobi_step(stream);
  jacobi_step.template BindKernel<LaunchMode::PureHost>(jacobi_kernel, grid, block, 0, args);
  jacobi_step.template BindKernel<LaunchMode::PartialDevice>(jacobi_p_dev, grid, block, 0, args);
  jacobi_step.template BindKernel<LaunchMode::PureDevice>(jacobi_dev, grid, block, 0, args);
  jacobi_step.LaunchKernel();
  jacobi_step.CommStart();
  jacobi_step.Post(A_buf, Anew_buf, nx, sync_arr + 1, 1, top, &comm);
  jacobi_step.Acknowledge(Anew_buf + nx, nx, sync_arr, 1, top, &comm);
  jacobi_step.CommEnd();
}
template void listing_4<LaunchMode::PureHost>(cudaStream_t, dim3, dim3, void**,
                                              Communicator<Backend>&, float*, float*, uint64_t*,
                                              size_t, int);
template void listing_4<LaunchMode::PartialDevice>(cudaStream_t, dim3, dim3, void**,
                                                   Communicator<Backend>&, float*, float*,
                                                   uint64_t*, size_t, int);
template void listing_4<LaunchMode::PureDevice>(cudaStream_t, dim3, dim3, void**,
                                                Communicator<Backend>&, float*, float*, uint64_t*,
                                                size_t, int);
#endif
