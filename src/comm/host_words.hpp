// The words by which a rank's kernels and its host talk: pinned host memory that its GPU reads and
// writes.
#pragma once

#include <string>

#include "comm/numbered_waits.hpp"
#include "comm/status_record.hpp"
#include "driver/cuda_driver.hpp"

namespace polypath {

/// Thread-safe.
class HostWords {
 public:
  /// StatusRecord::bytes of a wait for a word of the host's: how many exchanges between nodes.
  static constexpr std::uint64_t kExchanges = ~std::uint64_t{0};

  /// Throws DriverError. `context` must outlive it.
  HostWords(const CudaDriver& driver, CUcontext context);
  ~HostWords();
  HostWords(const HostWords&) = delete;
  HostWords& operator=(const HostWords&) = delete;

  /// Kernels that poll the word give up from now on.
  void abort() noexcept;
  // For Patience; both may be addressed by host and GPU.
  [[nodiscard]] const std::uint32_t* abort_word() const noexcept;
  [[nodiscard]] StatusRecord* status() const noexcept;
  /// What a kernel said that gave up by itself; empty while none did. `numbered`: what those of the
  /// program may have waited at.
  [[nodiscard]] std::string given_up(const NumberedWaits& numbered) const;

 private:
  struct Words;
  const CudaDriver& driver_;
  CUcontext context_;
  Words* words_ = nullptr;
};

}  // namespace polypath
