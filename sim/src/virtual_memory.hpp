// Virtual memory management: reservations of addresses, physical memory of GPUs and NUMA domains,
// mappings of it and access to them.
//
// VirtualMemory owns the reservations and what handles hold of physical memory; mappings lie in
// Memory. All of it is guarded by the driver's lock. Arguments that do not fit are Failure
// INVALID_VALUE, where nothing else is said.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "cuda_api.hpp"
#include "deallocator.hpp"
#include "devices.hpp"
#include "memory.hpp"
#include "topology/node.hpp"

namespace polypath::sim {

class VirtualMemory {
 public:
  /// The others must outlive this.
  VirtualMemory(const Node& node, Memory& memory, Deallocator& deallocator, Devices& devices)
      : node_(node), memory_(memory), deallocator_(deallocator), devices_(devices) {}

  /// What addresses and sizes of memory with these properties are multiples of. Failure
  /// NOT_SUPPORTED for memory that other processes may open.
  [[nodiscard]] std::size_t granularity(const CUmemAllocationProp* properties) const;
  CUdeviceptr reserve(std::size_t bytes, std::size_t alignment);
  /// Ends a reservation without mappings.
  void free(CUdeviceptr address, std::size_t bytes);

  /// Failure OUT_OF_MEMORY when the GPU is full, and as granularity(). `flags`: of cuMemCreate, 0.
  CUmemGenericAllocationHandle create(std::size_t bytes, const CUmemAllocationProp* properties,
                                      unsigned long long flags);
  /// Gives a handle back. Memory that is mapped stays until it is unmapped.
  void release(CUmemGenericAllocationHandle handle);
  /// The handle of the memory that is mapped at the address, to be released once more.
  CUmemGenericAllocationHandle retain(CUdeviceptr address);
  [[nodiscard]] const CUmemAllocationProp& properties(CUmemGenericAllocationHandle handle) const;

  /// Maps all of the memory.
  void map(CUdeviceptr address, std::size_t bytes, CUmemGenericAllocationHandle handle);
  /// Waits for all work that uses the mappings.
  void unmap(CUdeviceptr address, std::size_t bytes);
  /// All or none. Failure INVALID_DEVICE for a GPU without a link to the memory.
  void set_access(CUdeviceptr address, std::size_t bytes,
                  std::span<const CUmemAccessDesc> accesses);
  [[nodiscard]] CUmemAccess_flags access(CUdeviceptr address, const CUmemLocation& location) const;

 private:
  MemoryId location_of(const CUmemAllocationProp* properties) const;
  [[nodiscard]] const std::shared_ptr<Physical>& find_physical(
      CUmemGenericAllocationHandle handle) const;
  /// Begin and bytes of the reservation that the whole range lies in.
  [[nodiscard]] std::pair<std::uintptr_t, std::size_t> find_reservation(std::uintptr_t address,
                                                                        std::size_t bytes) const;
  [[nodiscard]] AllocationPtr find_mapping(std::uintptr_t address) const;
  /// The mappings that the range consists of: whole ones, without gaps.
  [[nodiscard]] std::vector<AllocationPtr> find_mappings(std::uintptr_t address,
                                                         std::size_t bytes) const;
  /// The accessor at this location, by the numbers of Access.
  [[nodiscard]] int accessor(const CUmemLocation& location) const;
  void require_possible(const Allocation& mapping, int accessor) const;

  const Node& node_;
  Memory& memory_;
  Deallocator& deallocator_;
  Devices& devices_;
  std::map<std::uintptr_t, std::size_t> reservations_;  // bytes, by begin
  std::map<CUmemGenericAllocationHandle, std::shared_ptr<Physical>> physicals_;
};

}  // namespace polypath::sim
