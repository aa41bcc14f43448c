// The program's memory, as far as the engine must know of it, or the program must not see what the
// engine did with it: memory of other processes, memory that the program maps, peer access. Any
// thread.
#pragma once

#include <cstddef>

#include "cuda/engine.hpp"

namespace polypath::preload {

// ---- memory of other processes (ipc_memory.cpp) -------------------------------------------------
//
// The calls are the driver's; the engine is told of what came of them, because the driver does not
// say on which GPU imported memory lies: it names the importer's. So memory that the engine was not
// told of must never be planned for as if it were this process's own.
//
// From the first call on the shim keeps what is imported, and what was exported until an engine
// knows. A new engine is told of all that before any other thread sees it. Any thread.

/// For the thread that makes the engine: tells it all that is kept, in order, and publishes it when
/// nothing is left. Later calls register their own memory.
void register_recorded_memory(const Engine& engine) noexcept;

/// The engine is gone: no kept entry is registered any more.
void keep_shared_memory() noexcept;

/// The GPU was reset: what was imported in its context is gone.
void forget_shared_memory_of(CUdevice gpu) noexcept;

/// For a child: nothing of its parent's memory is its own.
void forget_shared_memory() noexcept;

/// Whether a part of these bytes may lie in another process's memory that the engine was not told
/// of.
bool may_be_unregistered(CUdeviceptr address, std::size_t bytes) noexcept;

// ---- memory that the program maps (mapped_memory.cpp) -------------------------------------------
//
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

// ---- peer access (peer_access.cpp) --------------------------------------------------------------
//
// Peer access as the program has it: the engine enables it too, in the same contexts, and what the
// program enables, or disables, must be answered as if it had not. Any thread.

/// Its primary context is going to be reset.
void forget_peer_access_of(CUdevice gpu) noexcept;

/// In the child of a fork.
void forget_peer_access() noexcept;

}  // namespace polypath::preload
