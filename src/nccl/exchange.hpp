// An all-gather of bytes in host memory over a communicator of NCCL's, by which its ranks agree and
// polypath's communicator is made (polypath_exchange).
#pragma once

#include <cstddef>
#include <string>

#include "nccl/cuda.hpp"
#include "nccl/real_library.hpp"

namespace polypath::nccl {

/// What an exchange moves bytes with. Kept for later ones of the context where the driver numbers
/// contexts: freeing it would wait for the GPU's kernels.
struct ExchangeBuffers {
  CUcontext context = nullptr;
  unsigned long long context_id = 0;  ///< 0: it has none
  CUstream stream = nullptr;
  CUdeviceptr memory = 0;
  std::byte* pinned = nullptr;  ///< of the same size: copies to and from it do not block
};

/// For one rank; one thread at a time. The memory and the stream are of the primary context of its
/// GPU, and go with it.
class Exchange {
 public:
  /// `context` is the primary context of the GPU; `size`: at most 8. All is taken here that can be
  /// missing.
  Exchange(const Real& real, const Cuda& cuda, void* comm, int size, CUcontext context) noexcept;
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  /// Collective. False when NCCL or the driver failed: the communicator is of no use then. Waits as
  /// long as NCCL does.
  bool gather(const void* mine, void* all, std::size_t bytes) noexcept;
  /// A polypath_exchange; `user` is an Exchange.
  static int gather_for(const void* mine, void* all, std::size_t bytes, void* user) noexcept;

  [[nodiscard]] const std::string& why() const noexcept { return why_; }

 private:
  bool gather_part(const std::byte* mine, std::byte* all, std::size_t stride,
                   std::size_t bytes) noexcept;
  bool wait() noexcept;
  bool fail(const char* call, int code) noexcept;

  const Real& real_;
  const Cuda& cuda_;
  void* comm_;
  std::size_t size_;
  CUcontext context_;
  ExchangeBuffers its_;
  std::string why_;
};

}  // namespace polypath::nccl
