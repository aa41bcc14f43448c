// What a program has linked of a library's device side, told to the backend, which finds the rest of
// the library at run time. The device headers fill it in before main(). C++17.
#pragma once

#include <cstddef>

struct CUstream_st;

namespace polypath::uniconn::detail {

/// By device/gpushmem.cuh: functions of libnvshmem_device, which initialise the program's own copy of
/// NVSHMEM's device state. They give 0, or NVSHMEM's or the CUDA runtime's code.
struct NvshmemOfProgram {
  /// As nvshmemx_init_attr, but that a failure is a status.
  int (*init)(unsigned flags, void* attributes);
  void (*finalize)();
  /// nvshmemx_collective_launch of a __global__ function.
  int (*launch)(const void* kernel, const unsigned* grid, const unsigned* block, void** args,
                std::size_t shared_bytes, CUstream_st* stream);
};
inline const NvshmemOfProgram* nvshmem_of_program = nullptr;

}  // namespace polypath::uniconn::detail
