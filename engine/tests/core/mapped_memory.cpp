#include "mapped_memory.hpp"

#include <map>

namespace polypath::test {
namespace {

struct State {
  CudaDriver below;
  MappingAnswer answer = MappingAnswer::mapping;
  std::map<CUdeviceptr, std::vector<Mapping>> reservations;
};

State& state() {
  static State instance;
  return instance;
}

struct Reservation {
  CUdeviceptr start = 0;  ///< of the reservation
  std::uint64_t bytes = 0;
  CUdeviceptr base = 0;  ///< of the mapping
  const Mapping* mapping = nullptr;
};

Reservation find(CUdeviceptr address) {
  for (const auto& [start, mappings] : state().reservations) {
    Reservation reservation{start, 0, 0, nullptr};
    for (const Mapping& mapping : mappings) {
      if (address >= start + reservation.bytes &&
          address < start + reservation.bytes + mapping.bytes) {
        reservation.base = start + reservation.bytes;
        reservation.mapping = &mapping;
      }
      reservation.bytes += mapping.bytes;
    }
    if (reservation.mapping != nullptr) return reservation;
  }
  return {};
}

template <typename T>
void put(void* data, T value) {
  *static_cast<T*>(data) = value;
}

/// Whether the attribute is other than of the allocation below.
bool answer(const Reservation& reservation, CUpointer_attribute attribute, void* data) {
  const bool whole = state().answer == MappingAnswer::reservation;
  switch (static_cast<int>(attribute)) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      put(data, unsigned{reservation.mapping->gpu < 0 ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE});
      return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: put(data, reservation.mapping->gpu); return true;
    case CU_POINTER_ATTRIBUTE_CONTEXT: put(data, CUcontext{nullptr}); return true;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: put(data, 0u); return true;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: put(data, reservation.start); return true;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: put(data, std::size_t{reservation.bytes}); return true;
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      put(data, whole ? reservation.start : reservation.base);
      return true;
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      put(data, std::size_t{whole ? reservation.bytes : reservation.mapping->bytes});
      return true;
  }
  return false;
}

CUresult get_attributes(unsigned int count, CUpointer_attribute* attributes, void** values,
                        CUdeviceptr address) {
  const Reservation reservation = find(address);
  for (unsigned int i = 0; i < count; ++i) {
    const bool of_mapping = attributes[i] == CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR ||
                            attributes[i] == CU_POINTER_ATTRIBUTE_MAPPING_SIZE;
    if (of_mapping && (reservation.mapping == nullptr || state().answer == MappingAnswer::refused))
      return CUDA_ERROR_INVALID_VALUE;
    if (reservation.mapping != nullptr && answer(reservation, attributes[i], values[i])) continue;
    const CUresult result =
        state().below.pointer_get_attributes(1, attributes + i, values + i, address);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult get_access(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr address) {
  const Reservation reservation = find(address);
  if (reservation.mapping == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = reservation.mapping->access.contains(location->id) ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                                              : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return CUDA_SUCCESS;
}

}  // namespace

MappedMemory::MappedMemory(std::shared_ptr<const CudaDriver> driver, MappingAnswer answer) {
  state() = {*driver, answer, {}};
  auto table = std::make_shared<CudaDriver>(*driver);
  table->pointer_get_attributes = &get_attributes;
  table->mem_get_access = &get_access;
  driver_ = std::move(table);
}

MappedMemory::~MappedMemory() { state().reservations.clear(); }

void MappedMemory::map(CUdeviceptr start, std::vector<Mapping> mappings) {
  state().reservations[start] = std::move(mappings);
}

}  // namespace polypath::test
