// The words by which a rank's kernels and its host talk: host memory that its GPU reads and writes.
// The host may read and write them as long as they exist, also after a reset of the GPU.
#pragma once

#include <memory>
#include <string>

#include "comm/registered_memory.hpp"
#include "comm/wait_error.hpp"
#include "comm/wait_registry.hpp"
#include "driver/cuda_driver.hpp"

namespace polypath {

/// Thread-safe.
class HostFlags {
 public:
  /// wait_error::bytes of a wait for a word of the host's: how many exchanges between nodes.
  static constexpr std::uint64_t kExchanges = ~std::uint64_t{0};

  /// Throws Error, DriverError.
  HostFlags(const CudaDriver& driver, std::shared_ptr<const PrimaryContext> context);

  /// Kernels that poll the word stop waiting from now on.
  void abort() noexcept;
  // For wait_context; both may be addressed by host and GPU.
  [[nodiscard]] const std::uint32_t* abort_flag() const noexcept;
  [[nodiscard]] wait_error* status() const noexcept;
  /// The report of a kernel that timed out by itself; empty while there is none. `numbered`: what
  /// kernels of the program may have waited at.
  [[nodiscard]] std::string given_up(const WaitRegistry& numbered) const;

 private:
  struct Words;
  RegisteredMemory memory_;
  Words* words_;
};

}  // namespace polypath
