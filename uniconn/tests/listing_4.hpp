// Listing 4 of the UNICONN paper, with the declarations that it leaves out: for every backend and
// launch mode that there is.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <utility>

#include "polypath/uniconn.hpp"

// As of kernels that a CUDA compiler made.
void jacobi_kernel(const float*, float*, int);
void jacobi_p_dev(const float*, float*, int);
void jacobi_f_dev(const float*, float*, int);

namespace polypath::test {

using namespace polypath::uniconn;

template <typename Backend, LaunchMode X>
int listing_4(int argc, char* argv[]) {
  float* A = nullptr;
  float* A_new = nullptr;
  const std::size_t nx = 1024;
  const std::size_t chunk_size_high = 128;
  const int iter_max = 100;
  cudaStream_t stream = nullptr;
  dim3 dim_grid_host, dim_block_host, dim_grid_p_dev, dim_block_p_dev, dim_grid_dev, dim_block_dev;

  // Environment initialization
  Environment<Backend> env(argc, argv);
  int rank = env.WorldRank();
  int size = env.WorldSize();
  int local_rank = env.NodeRank();
  env.SetDevice(local_rank);
  // Communication initialization
  Communicator<Backend> comm;
  auto* comm_d = comm.toDevice();
  int npes = comm.GlobalSize();
  int mype = comm.GlobalRank();
  const int top = (mype + npes - 1) % npes;
  const int bottom = (mype + 1) % npes;
  // Memory management
  float* A_buf = Memory<Backend>::template Alloc<float>(2 * nx);
  float* Anew_buf = Memory<Backend>::template Alloc<float>(2 * nx);
  uint64_t* sync_arr = Memory<Backend>::template Alloc<uint64_t>(4);
  cudaMalloc(reinterpret_cast<void**>(&A), nx * chunk_size_high * sizeof(float));
  cudaMalloc(reinterpret_cast<void**>(&A_new), nx * chunk_size_high * sizeof(float));
  // Coordinator construction
  Coordinator<Backend, X> jacobi_step(stream);
  void* argsHost[] = {&A, &A_new, &rank};
  void* argsPdev[] = {&A, &A_new, &comm_d};
  void* argsFDev[] = {&A, &A_new, &comm_d, &size};
  // Kernel binding with launch modes
  jacobi_step.template BindKernel<LaunchMode::PureHost>(jacobi_kernel, dim_grid_host,
                                                        dim_block_host, 0, argsHost);
  jacobi_step.template BindKernel<LaunchMode::PartialDevice>(jacobi_p_dev, dim_grid_p_dev,
                                                             dim_block_p_dev, 0, argsPdev);
  jacobi_step.template BindKernel<LaunchMode::PureDevice>(jacobi_f_dev, dim_grid_dev, dim_block_dev,
                                                          0, argsFDev);
  comm.Barrier(stream);
  // Jacobi time loop
  for (int iter = 0; iter < iter_max; ++iter) {
    jacobi_step.LaunchKernel();
    jacobi_step.CommStart();
    jacobi_step.Post(A_buf, Anew_buf, nx, sync_arr + 1, iter + 1, top, &comm);
    jacobi_step.Post(A_buf + nx, Anew_buf + nx, nx, sync_arr, iter + 1, bottom, &comm);
    jacobi_step.Acknowledge(Anew_buf + nx, nx, sync_arr, iter + 1, top, &comm);
    jacobi_step.Acknowledge(Anew_buf, nx, sync_arr + 1, iter + 1, bottom, &comm);
    jacobi_step.CommEnd();
    std::swap(A_new, A);
    std::swap(Anew_buf, A_buf);
  }
  comm.Barrier(stream);
  cudaStreamSynchronize(stream);
  // Memory free
  cudaFree(A);
  cudaFree(A_new);
  Memory<Backend>::Free(A_buf);
  Memory<Backend>::Free(Anew_buf);
  Memory<Backend>::Free(sync_arr);
  return 0;
}

/// Listing 7: what each call takes, and its forms in place and with vectors.
template <typename Backend>
void listing_7(Coordinator<Backend, LaunchMode::PureHost>& it, float* sendbuf, float* recvbuf,
               std::size_t size, std::size_t* counts, std::size_t* displs, uint64_t* sig_loc,
               Communicator<Backend>* comm) {
  const int root = 0;
  it.Post(sendbuf, recvbuf, size, sig_loc, 1, root, comm);
  it.Acknowledge(recvbuf, size, sig_loc, 1, root, comm);
  it.AllGather(sendbuf, recvbuf, size, comm);
  it.AllGather(recvbuf, size, comm);
  it.AllGatherv(sendbuf, recvbuf, counts, displs, comm);
  it.AllGatherv(recvbuf, counts, displs, comm);
  it.template AllReduce<ReductionOperator::SUM>(sendbuf, recvbuf, size, comm);
  it.template AllReduce<ReductionOperator::SUM>(recvbuf, size, comm);
  it.template Reduce<ReductionOperator::MAX>(sendbuf, recvbuf, size, root, comm);
  it.template Reduce<ReductionOperator::MAX>(recvbuf, size, root, comm);
  it.AlltoAll(sendbuf, recvbuf, size, comm);
  it.AlltoAllv(sendbuf, counts, displs, recvbuf, counts, displs, comm);
  it.Broadcast(recvbuf, size, root, comm);
  it.Gather(sendbuf, recvbuf, size, root, comm);
  it.Gather(recvbuf, size, root, comm);
  it.Gatherv(sendbuf, recvbuf, counts, displs, root, comm);
  it.Gatherv(recvbuf, counts, displs, root, comm);
  it.Scatter(sendbuf, recvbuf, size, root, comm);
  it.Scatter(recvbuf, size, root, comm);
  it.Scatterv(sendbuf, recvbuf, counts, displs, root, comm);
  it.Scatterv(recvbuf, counts, displs, root, comm);
}

#define POLYPATH_LISTINGS_OF(Backend)                                                           \
  template int listing_4<Backend, LaunchMode::PureHost>(int, char**);                           \
  template void listing_7<Backend>(Coordinator<Backend, LaunchMode::PureHost>&, float*, float*, \
                                   std::size_t, std::size_t*, std::size_t*, uint64_t*,          \
                                   Communicator<Backend>*)

}  // namespace polypath::test
