// All memory that the simulated driver knows: what was allocated, by whom, where it lies.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "address_space.hpp"
#include "cuda_api.hpp"
#include "shadow.hpp"
#include "topology/node.hpp"

namespace polypath::sim {

/// One allocation, or one registered range.
struct Allocation {
  enum class Kind { device, pool, managed, pinned, registered };

  Kind kind = Kind::device;
  std::uintptr_t base = 0;
  std::size_t bytes = 0;
  std::uint64_t buffer_id = 0;     ///< never given out twice
  int device = 0;                  ///< of the context that it was made in
  MemoryId location;               ///< where its bytes lie
  CUcontext context = nullptr;     ///< null for pool memory, which belongs to no context
  CUmemoryPool pool = nullptr;     ///< of pool memory
  std::unique_ptr<Shadow> shadow;  ///< its bytes, where the program may not touch them

  [[nodiscard]] bool is_on_device() const noexcept { return shadow != nullptr; }
  /// The bytes from `address` on, to be read.
  const std::byte* read(std::uintptr_t address, std::size_t size) const;
  /// The bytes from `address` on, all of which the caller overwrites.
  std::byte* overwrite(std::uintptr_t address, std::size_t size) const;
};
using AllocationPtr = std::shared_ptr<const Allocation>;

class Memory {
 public:
  /// `gpu_bytes`: the size of each GPU's memory. `is_shared`: its bytes may be used without the driver's
  /// lock, and by other processes.
  Memory(std::vector<std::uint64_t> gpu_bytes, bool is_shared);

  /// Allocates as `wanted` says; base, buffer_id and shadow are filled in here, but base of a
  /// registered range is the caller's. Failure OUT_OF_MEMORY when the GPU is full.
  AllocationPtr add(Allocation wanted);

  /// Forgets it: the address is invalid from now on. The bytes live on for operations that hold the
  /// pointer; the GPU's memory counts as free with give_back().
  void remove(const AllocationPtr& allocation);
  void give_back(const AllocationPtr& allocation);

  /// The allocation that holds the address; null when there is none.
  [[nodiscard]] AllocationPtr find(std::uintptr_t address) const;
  /// An allocation that overlaps the range; null when there is none.
  [[nodiscard]] AllocationPtr find_overlap(std::uintptr_t address, std::size_t bytes) const;
  /// True for addresses that only this driver can have given out, alive or not.
  [[nodiscard]] bool owns(std::uintptr_t address) const noexcept {
    return space_.contains(address);
  }

  [[nodiscard]] std::uint64_t free_bytes(int device) const;
  [[nodiscard]] std::size_t live() const noexcept { return allocations_.size(); }
  /// One of the context's allocations; null when it has none.
  [[nodiscard]] AllocationPtr find_of_context(CUcontext context) const;

 private:
  [[nodiscard]] std::unique_ptr<Shadow> make_shadow(std::size_t bytes) const;

  AddressSpace space_;
  std::map<std::uintptr_t, AllocationPtr> allocations_;
  std::vector<std::uint64_t> free_bytes_;
  std::uint64_t next_buffer_id_ = 1;
  const bool is_shared_;
};

}  // namespace polypath::sim
