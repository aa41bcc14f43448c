// Host memory that GPUs reach and this process reads for as long as it likes: pages of the process,
// registered with the driver. A reset of the GPU takes the registration away, never the pages;
// memory of cuMemHostAlloc is gone then.
#pragma once

#include <cstddef>
#include <memory>

#include "base/kept.hpp"
#include "driver/resources.hpp"

namespace polypath {

class RegisteredMemory : public Keepable<RegisteredMemory> {
 public:
  /// Zeroed. Host and GPU have one address for it. Throws Error, DriverError.
  RegisteredMemory(const CudaDriver& driver, std::shared_ptr<const PrimaryContext> context,
                   std::size_t bytes);
  /// Nothing of the GPU uses it any more.
  ~RegisteredMemory();
  RegisteredMemory(const RegisteredMemory&) = delete;
  RegisteredMemory& operator=(const RegisteredMemory&) = delete;

  [[nodiscard]] std::byte* get() const noexcept { return static_cast<std::byte*>(pages_); }

 private:
  const CudaDriver& driver_;
  std::shared_ptr<const PrimaryContext> context_;
  std::size_t bytes_;
  void* pages_;
};

}  // namespace polypath
