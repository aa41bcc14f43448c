// Memory that a program maps itself, as vLLM's sleep mode and PyTorch's expandable segments do.
#pragma once

#include <cstdint>
#include <vector>

#include "core/shared_mappings.hpp"
#include "driver/check.hpp"

namespace polypath::test {

/// Memory of GPU 0 in mappings of `part` bytes, which GPU 0 alone may access.
class MappedBuffer {
 public:
  MappedBuffer(const CudaDriver& driver, std::uint64_t bytes, std::uint64_t part)
      : driver_(driver), bytes_(bytes), part_(part) {
    POLYPATH_CHECK(driver_, mem_address_reserve(&address_, bytes_, 0, 0, 0));
    map();
  }
  ~MappedBuffer() {
    unmap();
    POLYPATH_WARN(driver_, mem_address_free(address_, bytes_));
  }
  MappedBuffer(const MappedBuffer&) = delete;
  MappedBuffer& operator=(const MappedBuffer&) = delete;

  void map() {
    CUmemAllocationProp what{};
    what.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    what.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    for (std::uint64_t at = 0; at < bytes_; at += part_) {
      CUmemGenericAllocationHandle handle = 0;
      POLYPATH_CHECK(driver_, mem_create(&handle, part_, &what, 0));
      POLYPATH_CHECK(driver_, mem_map(address_ + at, part_, 0, handle, 0));
      POLYPATH_CHECK(driver_, mem_release(handle));
    }
    set_access(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  }
  void unmap() { POLYPATH_CHECK(driver_, mem_unmap(address_, bytes_)); }
  void set_access(int gpu, CUmemAccess_flags flags, std::uint64_t offset = 0,
                  std::uint64_t bytes = 0) {
    CUmemAccessDesc access{};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = gpu;
    access.flags = flags;
    POLYPATH_CHECK(driver_, mem_set_access(address_ + offset, bytes != 0 ? bytes : bytes_ - offset,
                                           &access, 1));
  }
  [[nodiscard]] CUmemAccess_flags access(int gpu, std::uint64_t offset = 0) const {
    return mapping_access(driver_, address_ + offset, gpu);
  }
  [[nodiscard]] CUdeviceptr address() const noexcept { return address_; }
  [[nodiscard]] std::vector<CUdeviceptr> mappings() const {
    std::vector<CUdeviceptr> all;
    for (std::uint64_t at = 0; at < bytes_; at += part_) all.push_back(address_ + at);
    return all;
  }

 private:
  const CudaDriver& driver_;
  std::uint64_t bytes_;
  std::uint64_t part_;
  CUdeviceptr address_ = 0;
};

}  // namespace polypath::test
