// The launch of a kernel, as plain data.
#pragma once

#include <cstddef>
#include <vector>

#include "cuda_api.hpp"
#include "simt/machine.hpp"

namespace polypath::sim {

/// What a launch runs.
struct KernelCall {
  const simt::HostKernel* host_kernel = nullptr;
  CUcontext context = nullptr;
  unsigned blocks = 0;
  unsigned threads = 0;  ///< of a block
  std::size_t shared_bytes = 0;
  std::vector<std::vector<std::byte>> arguments;
  bool begins_early = false;  ///< programmatic stream serialization
};

}  // namespace polypath::sim
