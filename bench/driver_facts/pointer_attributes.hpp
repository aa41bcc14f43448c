// Eight attributes of a pointer, by one call.
#pragma once

#include <array>

#include "driver/check.hpp"
#include "driver/cuda_driver.hpp"

namespace polypath::facts {

struct PointerAttributes {
  unsigned type = 0;  ///< CUmemorytype
  int ordinal = -1;
  unsigned managed = 0;
  CUmemoryPool pool = nullptr;
  CUcontext context = nullptr;
  unsigned legacy_ipc = 0;
  CUdeviceptr range_start = 0;
  std::size_t range_bytes = 0;

  /// Asks for the first `count`. Members that the driver does not write keep their value.
  void ask(const CudaDriver& driver, CUdeviceptr address, unsigned count = 8) {
    std::array names{
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        CU_POINTER_ATTRIBUTE_IS_MANAGED,       CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
        CU_POINTER_ATTRIBUTE_CONTEXT,          CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    std::array<void*, names.size()> places{&type,    &ordinal,    &managed,     &pool,
                                           &context, &legacy_ipc, &range_start, &range_bytes};
    POLYPATH_CHECK(driver, pointer_get_attributes(count, names.data(), places.data(), address));
  }
};

}  // namespace polypath::facts
