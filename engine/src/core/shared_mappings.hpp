// Mappings (cuMemMap) of this process that GPUs besides those that the program named may be given
// access to, so that copies from and to them may be staged there.
//
// Nothing is given before a transfer is about to use a route over the GPU in question: a program
// that maps memory pays nothing, and memory that is never copied gets no page tables on other GPUs.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "driver/cuda_driver.hpp"

namespace polypath {

/// Addresses [begin, end).
struct AddressRange {
  CUdeviceptr begin = 0;
  CUdeviceptr end = 0;
};

/// The mapping that holds the address, as the driver says; nothing where it does not say. Drivers
/// before CUDA 11.7 name the whole reservation.
std::optional<AddressRange> mapping_at(const CudaDriver& driver, CUdeviceptr address);

/// Access of `gpu` to the mapping that holds the address, as it is set now.
CUmemAccess_flags mapping_access(const CudaDriver& driver, CUdeviceptr address, int gpu);

/// Thread-safe. The lock is held over cuMemSetAccess, which waits for no work of a GPU.
class SharedMappings {
 public:
  /// `is_on`: off, nothing is ever given.
  explicit SharedMappings(bool is_on) noexcept : is_on_(is_on) {}

  /// Mappings in these bytes may be shared from now on. They are of memory of a GPU that this
  /// process allocated.
  void add(CUdeviceptr address, std::uint64_t bytes);
  /// They may not. When it returns, no GPU is being given access; GPUs that have it keep it.
  void remove(CUdeviceptr address, std::uint64_t bytes);

  /// Whether give() may succeed for these mappings, of each of which one address is named. Asks
  /// about ranges alone.
  [[nodiscard]] bool may_share(const CudaDriver& driver, std::span<const CUdeviceptr> mappings);
  /// Lets `gpu` read and write the mappings that it has no access to. False where one of them may
  /// not be shared, the program lets the GPU only read it, or the driver refuses, which is not
  /// tried again before the mapping is added anew. `saved_us`: what the GPU's route saves this
  /// transfer. False also until transfers could have saved as much as the calls take.
  bool give(const CudaDriver& driver, std::span<const CUdeviceptr> mappings, int gpu,
            double saved_us);
  /// What giving a GPU access to a mapping takes the thread, in microseconds. Measured on 4 x H200
  /// by `driver_facts --only access_costs`: 28 to 42 us up to 20 MiB, 8.6 ms for 1 GiB.
  static double cost_us(std::uint64_t mapping_bytes) noexcept;

  struct Counts {
    std::uint64_t granted = 0;  ///< calls of cuMemSetAccess that succeeded, each for one GPU
    std::uint64_t refused = 0;  ///< and that failed
  };
  [[nodiscard]] Counts counts();
  void reset_counts();

 private:
  // With mutex_ held:
  [[nodiscard]] bool holds(const AddressRange& range) const;
  void cut(CUdeviceptr begin, CUdeviceptr end);
  bool set_access(const CudaDriver& driver, const AddressRange& range, int gpu);

  const bool is_on_;
  std::mutex mutex_;
  std::map<CUdeviceptr, CUdeviceptr> ranges_;  // end by begin, apart from each other
  // By the begin of the mappings that lack access, and GPU:
  std::set<std::pair<CUdeviceptr, int>> refusals_;
  std::map<std::pair<CUdeviceptr, int>, double> missed_us_;  // that transfers could have saved
  Counts counts_;
};

}  // namespace polypath
