// What the kernel that copies small blocks and its launcher agree on. Read by the CUDA compiler
// too: plain declarations only.
#pragma once

#include <cstdint>

namespace polypath {

/// Addresses as the GPU that copies has them.
struct alignas(16) CopyEnds {
  std::uint64_t dst;
  std::uint64_t src;
};

/// One range to copy: an entry of the table. In pinned host memory, which the kernels of all GPUs
/// read; as large as the unit in which they read it.
struct alignas(32) CopyBlock {
  CopyEnds ends;
  std::uint64_t bytes;
  std::uint64_t unused;
};

struct CopyBlocksArgs {
  const CopyBlock* blocks;
  std::uint32_t count;
};

/// Threads of a thread block, at most.
inline constexpr unsigned int kCopyBlocksThreads = 512;

}  // namespace polypath
