// GPU memory for buffers that NCCL takes and polypath's kernels do not (pinned host memory, what is
// not aligned to its elements): only this rank knows of them, so they are mended on this rank
// alone, and the call stays polypath's on all.
#pragma once

#include <vector>

#include "nccl/cuda.hpp"

namespace polypath::nccl {

/// Of one communicator; one thread at a time.
class Scratch {
 public:
  Scratch() noexcept = default;
  Scratch(const Cuda& cuda, CUcontext context) noexcept : cuda_(&cuda), context_(context) {}
  Scratch(const Scratch&) = delete;
  Scratch& operator=(Scratch&& other) noexcept;
  /// Gives all of it back; what uses it must have completed.
  ~Scratch();

  /// Memory for work on this stream, which nothing else has until that is done; a captured graph's
  /// is its own for good. 0: there is none.
  CUdeviceptr take(std::size_t bytes, CUstream stream) noexcept;
  /// Behind the work.
  void done(CUdeviceptr memory, CUstream stream) noexcept;

 private:
  struct Piece {
    CUdeviceptr memory = 0;
    std::size_t bytes = 0;
    CUevent done = nullptr;
    bool is_free = false;  ///< once `done` has come
  };

  const Cuda* cuda_ = nullptr;
  CUcontext context_ = nullptr;
  std::vector<Piece> pieces_;
};

}  // namespace polypath::nccl
