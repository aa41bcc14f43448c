// What the driver says of an address, by one call.
#pragma once

#include <array>
#include <cstddef>

#include "driver/check.hpp"
#include "driver/cuda_driver.hpp"

namespace polypath {

/// For unknown memory, and for memory without an attribute, the driver writes a null value, or
/// nothing: the member keeps its own.
struct PointerAttributes {
  unsigned int type = 0;  ///< CUmemorytype; 0: no memory that CUDA knows
  int ordinal = -1;
  unsigned int managed = 0;
  CUmemoryPool pool = nullptr;
  CUcontext context = nullptr;
  unsigned int legacy_ipc = 0;
  CUdeviceptr start = 0;          ///< of the allocation, or of a mapping's whole reservation
  std::size_t bytes = 0;          ///< of the same
  unsigned long long buffer = 0;  ///< the driver's number of the allocation, never given out twice

  static constexpr unsigned int kCount = 9;

  /// Asks for the first `count` of these, in this order. Throws DriverError.
  void ask(const CudaDriver& driver, CUdeviceptr address, unsigned int count = kCount) {
    std::array<CUpointer_attribute, kCount> names{
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        CU_POINTER_ATTRIBUTE_IS_MANAGED,       CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
        CU_POINTER_ATTRIBUTE_CONTEXT,          CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
        CU_POINTER_ATTRIBUTE_BUFFER_ID};
    std::array<void*, kCount> places{&type,       &ordinal, &managed, &pool,  &context,
                                     &legacy_ipc, &start,   &bytes,   &buffer};
    POLYPATH_CHECK(driver, pointer_get_attributes(count, names.data(), places.data(), address));
  }

  /// From cuMemAlloc, or pinned: peer access of its context reaches it.
  [[nodiscard]] bool plain() const noexcept { return legacy_ipc != 0 && pool == nullptr; }
};

}  // namespace polypath
