// What a program has linked of a library's device side, told to the backend, which finds the rest
// of the library at run time. The device headers fill it in before main(). C++17.
#pragma once

#include <cstddef>
#include <cstdint>

struct CUstream_st;

namespace polypath::uniconn::detail {

/// By device/gpushmem.cuh: functions of libnvshmem_device, which initialise the program's own copy
/// of NVSHMEM's device state. They give 0, or NVSHMEM's or the CUDA runtime's code.
struct NvshmemProgramSymbols {
  /// As nvshmemx_init_attr, but that a failure is a status.
  int (*init)(unsigned flags, void* attributes);
  void (*finalize)();
  /// nvshmemx_collective_launch of a __global__ function.
  int (*launch)(const void* kernel, const unsigned* grid, const unsigned* block, void** args,
                std::size_t shared_bytes, CUstream_st* stream);
};
inline const NvshmemProgramSymbols* nvshmem_of_program = nullptr;

/// By device/gpuccl.cuh: NCCL's structures for kernels, as its headers of one version have them.
struct NcclProgramSymbols {
  int version;               ///< NCCL_VERSION_CODE
  std::size_t comm_bytes;    ///< of ncclDevComm
  std::size_t window_bytes;  ///< of what an ncclWindow_t points to, in memory of the GPU
  /// `function` is ncclDevCommCreate; what it makes goes to `device_comm`.
  int (*create)(void* function, void* comm, void* device_comm);
  /// Ranks whose memory kernels reach by loads and stores.
  int (*reached)(const void* device_comm);
  /// Where kernels find this rank's part of a window, and that of the next rank.
  void* (*begin)(const void* window);
  std::uint64_t (*stride)(const void* window);
};
inline const NcclProgramSymbols* nccl_of_program = nullptr;

}  // namespace polypath::uniconn::detail
