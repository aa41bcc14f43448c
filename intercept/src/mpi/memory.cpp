#include "mpi/memory.hpp"

namespace polypath::preload::mpi {
namespace {

/// Whether a primary context's kernels may use it: memory of mappings and pools has no context.
bool is_of_primary_context(const void* address, int gpu) noexcept {
  CUcontext owner = nullptr;
  if (!ask(CU_POINTER_ATTRIBUTE_CONTEXT, address, &owner) || owner == nullptr) return true;
  const PrimaryContext primary(gpu);
  return primary.get() == owner;
}

bool is_within_allocation(const Buffer& buffer) noexcept {
  CUdeviceptr start = 0;
  std::size_t bytes = 0;
  if (!ask(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, buffer.address, &start) || start == 0 ||
      !ask(CU_POINTER_ATTRIBUTE_RANGE_SIZE, buffer.address, &bytes))
    return true;  // what the driver does not tell
  return device_address(buffer.address) - start + buffer.bytes <= bytes;
}

}  // namespace

Place place_of(const Buffer& buffer, std::size_t element) noexcept {
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
