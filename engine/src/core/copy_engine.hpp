// What communicators ask of the engine: copies over all paths, and knowledge of memory of other
// processes. They know nothing else of it.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <span>

namespace polypath {

/// Addresses of one transfer, as the caller gave them.
struct Transfer {
  CUdeviceptr dst = 0;
  CUdeviceptr src = 0;
  std::uint64_t bytes = 0;
  CUstream stream = nullptr;
  /// Nothing but event records was put on the stream since the last transfer there that was split.
  bool follows = false;
  /// Others send as much the other way meanwhile.
  bool is_exchange = false;
};

/// Thread-safe. All functions throw the exceptions of base/error.hpp.
class CopyEngine {
 public:
  /// polypath_copy_async.
  virtual void copy_async(const Transfer& transfer) = 0;
  /// polypath_group_copy_async.
  virtual void group_copy_async(std::span<const Transfer> transfers) = 0;
  /// polypath_ipc_register_import, in the current CUDA context, for memory on GPU `holder`, -1 for
  /// unknown. Ignores what other processes published.
  virtual void memory_imported(const CUipcMemHandle& handle, CUdeviceptr address, int holder) = 0;
  /// polypath_ipc_unregister_import.
  virtual void memory_closed(CUdeviceptr address) = 0;

 protected:
  ~CopyEngine() = default;
};

}  // namespace polypath
