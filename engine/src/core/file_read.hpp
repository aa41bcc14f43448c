// What polypath_read_async() is asked for.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "exec/host_side.hpp"

namespace polypath {

struct FileRead {
  FilePart file;
  CUdeviceptr dst = 0;
  std::uint64_t bytes = 0;
  CUstream stream = nullptr;
};

/// Throws InvalidArgument for a descriptor that cannot be read at a place, FileError for a regular
/// file that is too short.
void check_file(const FileRead& read);

}  // namespace polypath
