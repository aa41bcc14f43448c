// The table of CUDA driver entry points, filled by dlopen from cuda_symbols.def. The engine calls
// nothing of CUDA but through such a table, so that a simulated driver or a fault-injecting table
// takes its place without a rebuild. A machine without a driver is a normal answer: null.
#pragma once

#include <cuda.h>

#include <memory>
#include <string>
#include <type_traits>

namespace polypath {

struct CudaDriver {
#define POLYPATH_CUDA(member, name, type, need) type member = nullptr;
#include "driver/cuda_symbols.def"

  std::string library;  ///< the file that it was loaded from

  /// No entry point: null but in a table that decorates a driver and must know more than it says.
  /// Called when [start, + bytes) was opened from another process in `context`: GPU `gpu` has it,
  /// -1 for unknown. The driver itself names the GPU of that context (docs/cuda-notes.md).
  void (*memory_imported)(CUdeviceptr start, std::size_t bytes, int gpu,
                          CUcontext context) = nullptr;
};

/// Opens `library` (a name for dlopen, or a path), fills the table and calls cuInit. Returns null,
/// with the reason in `*why`, when there is no such library, a required symbol is missing, or
/// cuInit finds no device. The library stays loaded for the life of the process. Thread-safe.
std::shared_ptr<const CudaDriver> load_cuda_driver(const std::string& library, std::string* why);

}  // namespace polypath
