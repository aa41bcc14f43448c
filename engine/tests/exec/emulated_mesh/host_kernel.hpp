// A driver that runs the lane kernel, over one that runs no kernels: each launch and each kernel
// node is carried by the copy that the kernel would make. Strict about contexts, as the real one
// is.
#pragma once

#include <memory>
#include <vector>

#include "driver/cuda_driver.hpp"

namespace polypath::test {

class HostKernelDriver {
 public:
  /// A launch, or a node that was added or set.
  struct Launch {
    CUcontext context = nullptr;  ///< that the kernel runs in
    unsigned int blocks = 0;
    CUdeviceptr dst = 0;
    CUdeviceptr src = 0;
    std::uint64_t bytes = 0;
    CUdeviceptr queues = 0;
  };
  /// What went since the start, or clear().
  struct Calls {
    std::vector<Launch> launches;
    std::vector<Launch> nodes;
    int copies = 0;      ///< cuMemcpyAsync
    int copy_nodes = 0;  ///< memcpy nodes, added or set
  };

  /// One at a time; must outlive the use of its table.
  explicit HostKernelDriver(std::shared_ptr<const CudaDriver> driver);
  ~HostKernelDriver();
  HostKernelDriver(const HostKernelDriver&) = delete;
  HostKernelDriver& operator=(const HostKernelDriver&) = delete;

  [[nodiscard]] std::shared_ptr<const CudaDriver> driver() const { return table_; }
  [[nodiscard]] const Calls& calls() const;
  void clear();

 private:
  std::shared_ptr<CudaDriver> table_;
};

}  // namespace polypath::test
