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

/// Whether a primary context's kernels may use it: memory of mappings and pools has no context.
inline bool is_of_primary_context(const void* address, int gpu) noexcept {
  CUcontext owner = nullptr;
  if (!ask(CU_POINTER_ATTRIBUTE_CONTEXT, address, &owner) || owner == nullptr) return true;
  const PrimaryContext primary(gpu);
  return primary.get() == owner;
}

inline bool is_within_allocation(const Buffer& buffer) noexcept {
  CUdeviceptr start = 0;
  std::size_t bytes = 0;
  if (!ask(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, buffer.address, &start) || start == 0 ||
      !ask(CU_POINTER_ATTRIBUTE_RANGE_SIZE, buffer.address, &bytes))
    return true;  // what the driver does not tell
  return device_address(buffer.address) - start + buffer.bytes <= bytes;
}

/// Where a buffer is.
struct Place {
  Reason problem = Reason::none;  ///< for which kernels cannot have it
  int gpu = -1;                   ///< the GPU whose memory it is; -1: none's
};

/// `element`: to how many bytes it has to be aligned.
inline Place place_of(const Buffer& buffer, std::size_t element) noexcept {
  Place place;
  if (is_managed(buffer.address)) return {Reason::managed_memory, -1};
  place.gpu = gpu_of(buffer.address);
  if (place.gpu < 0)
    place.problem = Reason::host_memory;
  else if (device_address(buffer.address) % element != 0)
    place.problem = Reason::misaligned;
  else if (!is_within_allocation(buffer))
    place.problem = Reason::short_buffer;
  else if (!is_of_primary_context(buffer.address, place.gpu))
    place.problem = Reason::other_context;
  return place;
}

}  // namespace polypath::preload::mpi
