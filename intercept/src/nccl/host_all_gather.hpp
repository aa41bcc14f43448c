// An all-gather of bytes in host memory over an NCCL communicator, by which its ranks agree and
// polypath's communicator is made (polypath_all_gather_fn).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "nccl/advertisement.hpp"
#include "nccl/engine.hpp"
#include "nccl/real_library.hpp"

namespace polypath::nccl {

/// The primary context of a GPU, and what an exchange moves bytes with there: all that one rank may
/// lack. Taken before the rank shows itself. Kept for later exchanges of the context where the
/// driver numbers contexts: freeing it would wait for the GPU's kernels.
class ExchangeBuffers {
 public:
  ExchangeBuffers() noexcept = default;
  /// On this GPU; -1: on the current one, none where no context is current: NCCL may choose the GPU
  /// then. What is missing why() says.
  explicit ExchangeBuffers(int gpu) noexcept;
  ~ExchangeBuffers();
  ExchangeBuffers(ExchangeBuffers&& other) noexcept { *this = std::move(other); }
  ExchangeBuffers& operator=(ExchangeBuffers&& other) noexcept;

  /// "": nothing is missing.
  [[nodiscard]] const std::string& why() const noexcept { return why_; }
  [[nodiscard]] CUcontext context() const noexcept { return resources_.context; }
  /// As the driver numbers contexts; 0: it does not.
  [[nodiscard]] unsigned long long context_id() const noexcept { return resources_.context_id; }
  [[nodiscard]] bool are_taken() const noexcept { return resources_.pinned != nullptr; }

 private:
  friend class HostAllGather;
  struct Buffers {
    CUcontext context = nullptr;
    unsigned long long context_id = 0;  ///< 0: it has none
    CUstream stream = nullptr;
    CUdeviceptr memory = 0;
    std::byte* pinned = nullptr;  ///< of the same size: copies to and from it do not block
  };
  struct Kept;
  static Kept& kept() noexcept;
  static bool take_kept(Buffers& buffers) noexcept;
  static bool keep(const Buffers& buffers) noexcept;
  void fail(const char* call, int code) noexcept;

  Buffers resources_;
  std::string why_;
};

/// For one rank; one thread at a time.
class HostAllGather {
 public:
  /// Over the communicator with this key, of `size` ranks, at most 8. Nothing is missing in
  /// `buffers`, which outlive it.
  HostAllGather(const RealNccl& real, void* comm, int size, const CommKey& key,
                ExchangeBuffers& buffers) noexcept;

  /// Collective. False when it failed, also for all that follow. Waits as long as NCCL does.
  bool gather(const void* local, void* all, std::size_t bytes) noexcept;
  /// A polypath_all_gather_fn; `user` is an Exchange.
  static int gather_for(const void* local, void* all, std::size_t bytes, void* user) noexcept;

  [[nodiscard]] const std::string& why() const noexcept { return why_; }
  /// It failed on all ranks at the same gather, because one of them could not copy its bytes to the
  /// GPU: NCCL's communicator is as good as before. Otherwise it is of no use.
  [[nodiscard]] bool failed_alike() const noexcept { return failed_alike_; }

 private:
  struct Header;
  bool gather_part(const std::byte* local, std::byte* all, std::size_t stride,
                   std::size_t bytes) noexcept;
  bool wait() noexcept;
  bool fail(const char* call, int code) noexcept;

  const RealNccl& real_;
  void* comm_;
  std::size_t size_;
  CommKey key_;
  ExchangeBuffers& buffers_;
  std::uint64_t parts_ = 0;
  std::string why_;
  bool failed_alike_ = false;
};

}  // namespace polypath::nccl
