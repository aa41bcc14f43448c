// Memory that the program maps itself (cuMemMap), and the GPUs that it gave access to it.
//
// The engine may let GPUs that stage copies reach such memory (polypath_share_mapping). The shim
// tells it which mappings are the program's own memory on a GPU, and only when a large copy from or
// to them is about to be offered: a program that maps memory pays for nothing else. What the
// program asks about access is answered from what it set itself.
//
//   cuMemCreate, cuMemRelease   handles of memory that the program allocates
//   cuMemMap, cuMemUnmap        the table of mappings
//   cuMemSetAccess              what the program set; access that the engine gave stays, since
//                               copies under way may use it
//   cuMemGetAccess, cuPointerGetAttribute(s)   answered from the table
//
// With POLYPATH_SHARE_MAPPINGS=off nothing is kept, and all calls are the driver's. Any thread.
#pragma once

#include <cstddef>

#include "cuda/engine.hpp"

namespace polypath::preload {

/// Tells the engine of the mappings of copies that are about to be offered. For one call.
class MappingSharer {
 public:
  explicit MappingSharer(const Engine& engine) noexcept : engine_(engine) {}
  /// Tells of the mappings in these bytes, which lie anywhere.
  void share(CUdeviceptr address, std::size_t bytes) noexcept;

 private:
  const Engine& engine_;
  // Addresses of which nothing has to be told any more: copies of a batch lie next to each other.
  CUdeviceptr begin_ = 0;
  CUdeviceptr end_ = 0;
};

/// The engine is gone: a later one knows of no mapping.
void unshare_all_mappings() noexcept;

/// In the child of a fork.
void forget_mappings() noexcept;

}  // namespace polypath::preload
