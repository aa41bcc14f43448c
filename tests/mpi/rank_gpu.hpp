// The GPU of this rank: memory on it, and what the simulated driver counts of it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "driver/cuda_driver.hpp"

namespace polypath::test {

/// What moved over a link of the simulated node, by the copies of this process.
struct Moved {
  std::uint64_t bytes = 0;
  std::uint64_t copies = 0;
};

/// Makes the primary context of a GPU current for the thread, as an application does. Failures are
/// exceptions.
class RankGpu {
 public:
  /// GPU number rank modulo the count of GPUs.
  explicit RankGpu(int rank);

  [[nodiscard]] int index() const noexcept { return index_; }
  [[nodiscard]] CUdeviceptr allocate(std::uint64_t bytes) const;
  void free(CUdeviceptr address) const;
  void write(CUdeviceptr address, std::span<const std::byte> bytes) const;
  void read(CUdeviceptr address, std::span<std::byte> bytes) const;

  /// cudaDeviceReset(): memory is gone, and this object of no use any more.
  void reset() const;

  /// Counts begin at zero. Nothing happens on a real driver.
  void reset_counts() const;
  /// By "FROM>TO", without links over which nothing went. Empty on a real driver.
  [[nodiscard]] std::map<std::string, Moved> links() const;
  /// Copies with pageable memory on a side, and copies that the driver carried through host memory.
  /// 0 on a real driver.
  [[nodiscard]] std::uint64_t pageable_copies() const;
  [[nodiscard]] std::uint64_t bounced_copies() const;
  [[nodiscard]] bool is_simulated() const noexcept;

 private:
  std::shared_ptr<const CudaDriver> driver_;
  int gpus_ = 0;
  int index_ = 0;
};

}  // namespace polypath::test
