// What the kernel of jacobi2d.cuh gets: the one agreement between host and device. C++17.
#pragma once

#include <cstdint>

namespace uniconn_example {

/// Blocks share out the columns, `across` of them, and then the rows; all run at once.
struct JacobiLaunch {
  const float* from;  ///< with the halo
  float* to;
  std::uint64_t rows;
  std::uint64_t columns;
  std::uint64_t rows_of_top;  ///< the rank before this one, of the block above
  std::uint32_t across;
  std::uint32_t waits;  ///< 1: PureDevice, the kernel has the signals; 0: PartialDevice
  std::int32_t top;
  std::int32_t bottom;
  std::uint64_t value;   ///< of this iteration's signals
  std::uint64_t* words;  ///< for each column block, of the halo before the rows; then of that after
  float* changes;        ///< the largest of each warp, block by block, kJacobiWarps for each
  void* comm;            ///< Communicator<PolypathBackend>::toDevice()
};

inline constexpr std::uint32_t kJacobiThreads = 256;
inline constexpr std::uint32_t kJacobiWarps = kJacobiThreads / 32;
/// Rows of a column that a thread loads before it stores any, and blocks of an SM at once, at
/// least: that many loads in flight keep a GPU's memory busy. There are no registers for more.
inline constexpr std::uint32_t kJacobiTogether = 8;
inline constexpr std::uint32_t kJacobiBlocksAtOnce = 5;
inline constexpr std::uint32_t kJacobiMostAcross = 32;

}  // namespace uniconn_example
