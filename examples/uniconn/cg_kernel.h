// What the kernel of cg.cuh gets: the one agreement between host and device. C++17.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cg_arithmetic.h"

namespace uniconn_example {

enum class CgStep : std::uint32_t { multiply, update, turn };

/// Of one rank's rows, which come in blocks of cg::kBlockRows; thread blocks share them out.
struct CgLaunch {
  CgStep step;
  std::uint32_t waits;  ///< 1: PureDevice, the kernel sums up over all ranks, too; 0: PartialDevice
  std::uint64_t rows;
  const std::uint64_t* offsets;
  const std::int32_t* columns;
  const double* values;
  const double* vector;  ///< the direction, of all ranks
  double* own;           ///< this rank's part of it, which other ranks get
  double* product;
  double* solution;
  double* residual;
  double norm;
  // Words of all ranks' sums, as CgSums has them.
  const double* squared;
  double* along;
  double* next_squared;
  double* parts;         ///< a word for each block of rows
  std::uint32_t* ended;  ///< thread blocks; 0 before, and behind
  void* comm;            ///< Communicator<PolypathBackend>::toDevice()
};

/// Thread blocks of a multiprocessor at once, at least.
inline constexpr std::uint32_t kCgBlocksAtOnce = 4;
/// Of shared memory: a word for each row of a block, and for each thread.
inline constexpr std::size_t kCgShared =
    static_cast<std::size_t>(cg::kBlockRows + cg::kThreads) * sizeof(double);

}  // namespace uniconn_example
