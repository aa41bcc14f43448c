// One kernel a call and group. The file that includes this says for each what it calls by UNICONN,
// and what by the library alone: KERNELS(name, (by_uniconn), by_library), where G is the group.
#pragma once

#include "polypath/uniconn/enums.hpp"

using polypath::uniconn::LaunchMode;
using polypath::uniconn::ReductionOperator;
using polypath::uniconn::ThreadGroup;

/// What kernels have as parameters, all of them.
#define PARAMETERS                                                                          \
  const float *send, float *recv, size_t count, uint64_t *signal, uint64_t value, int rank, \
      const size_t *counts, const size_t *displs, const size_t *rdispls, Comm *comm, int *result

#if NATIVE
#define CHOSEN(by_uniconn, ...) __VA_ARGS__
#else
#define CHOSEN(by_uniconn, ...) by_uniconn
#endif

#define KERNEL(name, group, ...)                          \
  extern "C" __global__ void name##_##group(PARAMETERS) { \
    constexpr ThreadGroup G = ThreadGroup::group;         \
    CHOSEN(__VA_ARGS__);                                  \
  }
#define KERNELS(name, ...)          \
  KERNEL(name, THREAD, __VA_ARGS__) \
  KERNEL(name, WARP, __VA_ARGS__)   \
  KERNEL(name, BLOCK, __VA_ARGS__)
