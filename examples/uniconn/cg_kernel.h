// What the kernel of cg.cuh gets: the one agreement between host and device. C++17.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cg_arithmetic.h"

namespace uniconn_example {

enum class CgStep : std::uint32_t { multiply, update, turn };

/// Arguments for the rows of one rank. Sums are of blocks of cg::kBlockRows; thread blocks, as many as run at once,
/// share out rows evenly where they can, wherever those blocks end.
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
  double* parts;              ///< a word for each block of rows
  std::uint32_t* multiplied;  ///< rows of each block; 0 before, and after
  std::uint32_t* ended;       ///< thread blocks; 0 before, and after
  void* comm;                 ///< Communicator<PolypathBackend>::toDevice()
};

/// Thread blocks of a multiprocessor at once, at least.
inline constexpr std::uint32_t kCgBlocksAtOnce = 4;
/// Rows that a warp multiplies together, so that their entries are under way at once.
inline constexpr std::uint32_t kCgTogether = 4;
/// Rows of a thread block: a multiple of kCgStride, at least kCgFewestRows.
inline constexpr std::uint32_t kCgStride = kCgTogether * cg::kThreads / cg::kWarp;
inline constexpr std::uint32_t kCgFewestRows = 8 * kCgStride;
/// Bytes of shared memory: a word for each thread, and where the rows of a block begin, and end.
inline constexpr std::size_t kCgShared =
    cg::kThreads * sizeof(double) + (cg::kBlockRows + 1) * sizeof(std::uint32_t);

}  // namespace uniconn_example
