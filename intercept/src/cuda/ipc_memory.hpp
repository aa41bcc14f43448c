// Memory of other processes. The calls are the driver's; the engine is told of what came of them,
// because the driver does not say on which GPU imported memory lies: it names the importer's. So
// memory that the engine was not told of must never be planned for as if it were this process's
// own.
//
// From the first call on the shim keeps what is imported, and what was exported until an engine
// knows. A new engine is told of all that before any other thread sees it. Any thread.
#pragma once

#include <cstddef>

#include "cuda/engine.hpp"

namespace polypath::preload {

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

}  // namespace polypath::preload
