// A driver that reports chosen allocations as virtual mappings. The test sets their GPUs, the GPUs
// that may reach them, and how much of this the driver tells. The bytes are those of the driver
// below.
#pragma once

#include <memory>
#include <set>
#include <vector>

#include "driver/cuda_driver.hpp"

namespace polypath::test {

struct Mapping {
  std::uint64_t bytes = 0;
  int gpu = -1;          ///< that it is said to lie on; -1: host memory
  std::set<int> access;  ///< GPUs that may read and write it
};

/// What a driver says of the attributes MAPPING_BASE_ADDR and MAPPING_SIZE.
enum class MappingAnswer : std::uint8_t { mapping, reservation, refused };

/// One at a time; not thread-safe.
class MappedMemory {
 public:
  MappedMemory(std::shared_ptr<const CudaDriver> driver, MappingAnswer answer);
  ~MappedMemory();
  MappedMemory(const MappedMemory&) = delete;
  MappedMemory& operator=(const MappedMemory&) = delete;

  [[nodiscard]] std::shared_ptr<const CudaDriver> driver() const noexcept { return driver_; }
  /// From now on a reservation begins at `start`, an allocation of the driver below, that holds
  /// these mappings one after the other. Replaces what was there before.
  void map(CUdeviceptr start, std::vector<Mapping> mappings);

 private:
  std::shared_ptr<const CudaDriver> driver_;
};

}  // namespace polypath::test
