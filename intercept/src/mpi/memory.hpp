// What the memory is that a program passed to MPI, as the driver tells.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

#include "cuda/intercepted.hpp"
#include "mpi/call.hpp"
#include "mpi/mpi_statistics.hpp"

namespace polypath::preload::mpi {

inline CUdeviceptr device_address(const void* address) noexcept {
  return reinterpret_cast<CUdeviceptr>(address);
}

template <typename Value>
bool ask(CUpointer_attribute attribute, const void* address, Value* value) noexcept {
  return gate::ask(attribute, device_address(address), value);
}

inline bool is_managed(const void* address) noexcept {
  unsigned is_set = 0;
  return driver_library() != nullptr && address != nullptr &&
         ask(CU_POINTER_ATTRIBUTE_IS_MANAGED, address, &is_set) && is_set != 0;
}

/// The GPU whose memory it is; -1: the host's, or managed.
inline int gpu_of(const void* address) noexcept {
  unsigned type = 0;
  int gpu = -1;
  if (address == nullptr || driver_library() == nullptr ||
      !ask(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address, &type) || type != CU_MEMORYTYPE_DEVICE ||
      is_managed(address))
    return -1;
  return ask(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address, &gpu) ? gpu : -1;
}

/// Looks up addresses, of which many in a row lie in the same allocation, or page of the host.
class MemoryAt {
 public:
  /// The GPU as of gpu_of(), and the end of what is certain to be the same memory.
  struct Range {
    int gpu = -1;
    std::uintptr_t end = 0;
  };
  static constexpr std::uintptr_t kPage = 4096;
  Range find(std::uintptr_t address) noexcept {
    if (address >= begin_ && address < range_.end) return range_;
    const auto* const pointer = reinterpret_cast<const void*>(address);
    range_ = {gpu_of(pointer), (address / kPage + 1) * kPage};
    begin_ = address;
    CUdeviceptr start = 0;
    std::size_t bytes = 0;
    if (range_.gpu >= 0)
      range_.end = ask(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, pointer, &start) && start != 0 &&
                           ask(CU_POINTER_ATTRIBUTE_RANGE_SIZE, pointer, &bytes)
                       ? start + bytes
                       : UINTPTR_MAX;  // what the driver does not tell
    return range_;
  }

 private:
  std::uintptr_t begin_ = 1;
  Range range_{-1, 0};
};

/// Where a buffer is.
struct Place {
  Reason problem = Reason::none;  ///< for which kernels cannot have it
  int gpu = -1;                   ///< the GPU whose memory it is; -1: none's
};

/// `element`: to how many bytes it has to be aligned.
Place place_of(const Buffer& buffer, std::size_t element) noexcept;

}  // namespace polypath::preload::mpi
