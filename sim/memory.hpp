// All memory that the simulated driver knows: what was allocated, by whom, where it lies.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <vector>

#include "address_space.hpp"
#include "cuda_api.hpp"
#include "shadow.hpp"
#include "topology/node.hpp"

namespace polypath::sim {

/// Memory of another process, opened by a handle (cuIpcOpenMemHandle).
struct Import {
  std::uint64_t process_id = 0;  ///< of the process that made it
  std::uint64_t buffer_id = 0;   ///< there
  int opened = 0;                ///< how often its context has it open
};

/// One allocation, one registered range, or one import.
struct Allocation {
  enum class Kind { device, pool, managed, pinned, registered, imported };

  Kind kind = Kind::device;
  std::uintptr_t base = 0;
  std::size_t bytes = 0;
  std::uint64_t buffer_id = 0;     ///< never given out twice
  int device = 0;                  ///< of the context that it was made in
  MemoryId location;               ///< where its bytes lie
  CUcontext context = nullptr;     ///< null for pool memory, which belongs to no context
  CUmemoryPool pool = nullptr;     ///< of pool memory
  std::unique_ptr<Shadow> shadow;  ///< its bytes, where the program may not touch them
  std::shared_ptr<Import> import;  ///< null but of imported memory
  /// CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: synchronous copies of it are waited for, whatever they are.
  mutable bool syncs_copies = false;

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
  /// lock, and by other processes. `reuses_addresses`: as AddressSpace says.
  Memory(std::vector<std::uint64_t> gpu_bytes, bool is_shared, bool reuses_addresses);

  /// Allocates as `wanted` says; base, buffer_id and shadow are filled in here, but base of a
  /// registered range and the shadow of an import are the caller's. Failure OUT_OF_MEMORY when the GPU is
  /// full.
  AllocationPtr add(Allocation wanted);

  /// Forgets it: the address is invalid from now on. The bytes live on for operations that hold the
  /// pointer; the GPU's memory counts as free with give_back().
  void remove(const AllocationPtr& allocation);
  void give_back(const AllocationPtr& allocation);

  /// The allocation that holds the address; null when there is none.
  [[nodiscard]] AllocationPtr find(std::uintptr_t address) const;
  /// An allocation that overlaps the range; null when there is none.
  [[nodiscard]] AllocationPtr find_overlap(std::uintptr_t address, std::size_t bytes) const;
  /// The one that begins at the address and is of one of these kinds; Failure{otherwise} when there is
  /// none.
  [[nodiscard]] AllocationPtr find_base(std::uintptr_t address,
                                        std::initializer_list<Allocation::Kind> kinds,
                                        CUresult otherwise) const;
  /// Any that `fits`; null when there is none.
  [[nodiscard]] AllocationPtr find_if(const std::function<bool(const Allocation&)>& fits) const;
  /// True for addresses that only this driver can have given out, alive or not.
  [[nodiscard]] bool owns(std::uintptr_t address) const noexcept {
    return space_.contains(address);
  }

  [[nodiscard]] std::uint64_t free_bytes(int device) const;
  [[nodiscard]] std::size_t live() const noexcept { return allocations_.size(); }

 private:
  [[nodiscard]] std::unique_ptr<Shadow> make_shadow(const Allocation& wanted) const;

  AddressSpace space_;
  std::map<std::uintptr_t, AllocationPtr> allocations_;
  std::vector<std::uint64_t> free_bytes_;
  std::uint64_t next_buffer_id_ = 1;
  const bool is_shared_;
};

}  // namespace polypath::sim
