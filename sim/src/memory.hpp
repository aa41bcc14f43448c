// All memory that the simulated driver knows: allocations, their owners and places.
#pragma once

#include <optional>

#include <cstddef>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <vector>

#include "base/units.hpp"
#include "cuda_api.hpp"
#include "shadow.hpp"
#include "topology/node.hpp"

namespace polypath::sim {

// Addresses that the simulated driver gives out. None is given out twice unless that is wanted, so
// that a freed address is recognised for as long as the process lives.

class AddressSpace {
 public:
  /// `reuses`: what is given back is given out again, the latest first, as drivers do.
  explicit AddressSpace(bool reuses) noexcept : reuses_(reuses) {}

  /// Reserves `bytes` without access, apart from every other range by at least one page.
  /// Throws std::bad_alloc when the system gives no more.
  /// `alignment`: at least this one, a power of two; 0: as the size asks for.
  std::uintptr_t reserve(std::size_t bytes, std::size_t alignment = 0);
  /// Nothing uses the range from `address` on, reserved for `bytes`, any more.
  void release(std::uintptr_t address, std::size_t bytes);

  /// Makes a reserved range readable and writable for the program.
  static void open(std::uintptr_t address, std::size_t bytes);
  /// Takes all access, and the memory after it, away again.
  static void close(std::uintptr_t address, std::size_t bytes);

  /// True for every address that may ever be, or has been, given out.
  [[nodiscard]] bool contains(std::uintptr_t address) const noexcept;

 private:
  struct Region {
    std::uintptr_t begin;
    std::uintptr_t end;
  };
  std::vector<Region> regions_;
  std::uintptr_t next_ = 0;  // in the last region
  const bool reuses_;
  std::map<std::size_t, std::vector<std::uintptr_t>> given_back_;  // by room
};

/// Memory of another process, opened by a handle (cuIpcOpenMemHandle).
struct Import {
  std::uint64_t process_id = 0;  ///< of the process that made it
  std::uint64_t buffer_id = 0;   ///< there
  int opened = 0;                ///< how often its context has it open
};

/// Memory without an address (cuMemCreate). It ends with its last handle and mapping.
struct Physical {
  CUmemGenericAllocationHandle handle = 0;
  CUmemAllocationProp properties{};
  std::size_t bytes = 0;
  MemoryId location;
  std::shared_ptr<Shadow> shadow;
  std::shared_ptr<void> room;  ///< what it takes of its GPU's memory
  int held = 0;                ///< its handle was given out so often, and not released
};

/// Which GPUs, and whether the CPU, may use a mapping or a pool's memory.
struct Access {
  static constexpr int kCpu = -1;

  std::map<int, CUmemAccess_flags> by_device;

  [[nodiscard]] CUmemAccess_flags get(int device) const {
    const auto it = by_device.find(device);
    return it == by_device.end() ? CU_MEM_ACCESS_FLAGS_PROT_NONE : it->second;
  }
};

/// One allocation, one registered range, one import, or one mapping of physical memory.
struct Allocation {
  enum class Kind { device, pool, managed, pinned, registered, imported, mapping };

  Kind kind = Kind::device;
  std::uintptr_t base = 0;
  std::size_t bytes = 0;
  std::uint64_t buffer_id = 0;  ///< never given out twice
  int device = 0;               ///< of the context that it was made in
  MemoryId location;            ///< where its bytes lie
  CUcontext context = nullptr;  ///< null for pool memory and mappings, which belong to no context
  CUmemoryPool pool = nullptr;  ///< of pool memory
  std::shared_ptr<Shadow> shadow;  ///< its bytes, but where they are at `base`
  std::shared_ptr<void> room;      ///< what it takes of its GPU's memory
  std::shared_ptr<Import> import;  ///< null but of imported memory
  /// CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: synchronous copies of any form are waited for.
  mutable bool syncs_copies = false;

  // For mappings only.
  std::shared_ptr<Physical> physical;
  mutable Access access;
  std::uintptr_t range_base = 0;  ///< the reservation that it lies in
  std::size_t range_bytes = 0;

  [[nodiscard]] bool is_on_device() const noexcept { return location.is_gpu(); }
  /// The bytes from `address` on, to be read.
  const std::byte* read(std::uintptr_t address, std::size_t size) const;
  /// The bytes from `address` on, all of which the caller overwrites.
  std::byte* overwrite(std::uintptr_t address, std::size_t size) const;
  /// Makes the bytes from `address` on zero.
  void clear(std::uintptr_t address, std::size_t size) const;
};
using AllocationPtr = std::shared_ptr<const Allocation>;

/// What page-locking host memory takes of a CPU. An order of magnitude, not measured.
[[nodiscard]] constexpr double pin_us(std::uint64_t bytes) noexcept {
  constexpr double kUsPerMiB = 250;
  return static_cast<double>(bytes) / static_cast<double>(kMiB) * kUsPerMiB;
}

class Memory {
 public:
  /// `gpu_bytes`: the size of each GPU's memory. `is_shared`: its bytes may be used without the
  /// driver's lock, and by other processes. `reuses_addresses`: as AddressSpace says.
  Memory(std::vector<std::uint64_t> gpu_bytes, bool is_shared, bool reuses_addresses);

  /// Allocates as `allocation` says. Fills in base, buffer_id, shadow and room, but for the base of
  /// a registered range or a mapping, and the shadow of an import or a mapping: these are the
  /// caller's.
  /// Failure OUT_OF_MEMORY when the GPU is full.
  AllocationPtr add(Allocation allocation);

  /// Forgets it: the address is invalid from now on. The bytes live on for operations that hold the
  /// pointer; the GPU's memory counts as free with release().
  void remove(const AllocationPtr& allocation);
  void release(const AllocationPtr& allocation);

  /// The allocation that holds the address; null when there is none.
  [[nodiscard]] AllocationPtr find(std::uintptr_t address) const;
  /// An allocation that overlaps the range; null when there is none.
  [[nodiscard]] AllocationPtr find_overlap(std::uintptr_t address, std::size_t bytes) const;
  /// The one that begins at the address and is of one of these kinds; Failure{otherwise} when there
  /// is none.
  [[nodiscard]] AllocationPtr find_base(std::uintptr_t address,
                                        std::initializer_list<Allocation::Kind> kinds,
                                        CUresult otherwise) const;
  /// Any that `fits`; null when there is none.
  [[nodiscard]] AllocationPtr find_if(const std::function<bool(const Allocation&)>& fits) const;
  /// True for addresses that only this driver can have given out, alive or not.
  [[nodiscard]] bool owns(std::uintptr_t address) const noexcept {
    return space_.contains(address);
  }

  /// Addresses for mappings, to be given back.
  std::uintptr_t reserve(std::size_t bytes, std::size_t alignment) {
    return space_.reserve(bytes, alignment);
  }
  void release(std::uintptr_t address, std::size_t bytes) { space_.release(address, bytes); }

  /// Takes `bytes` of the GPU's memory until the last copy of the result is gone. Failure
  /// OUT_OF_MEMORY when there is less left.
  std::shared_ptr<void> take(int device, std::uint64_t bytes);
  [[nodiscard]] std::uint64_t free_bytes(int device) const;
  /// Device memory of one allocation.
  std::shared_ptr<Shadow> make_shadow(int device, std::size_t bytes, std::uint64_t buffer_id) const;
  std::uint64_t next_buffer_id() noexcept { return next_buffer_id_++; }

  [[nodiscard]] std::size_t live() const noexcept { return allocations_.size(); }

 private:
  AddressSpace space_;
  std::map<std::uintptr_t, AllocationPtr> allocations_;
  std::vector<std::uint64_t> free_bytes_;
  std::uint64_t next_buffer_id_ = 1;
  const bool is_shared_;
};

/// What a fill repeats: the low `bytes` of `value`, 1, 2 or 4.
struct FillPattern {
  std::uint32_t value;
  std::size_t bytes;

  [[nodiscard]] bool is_zero() const noexcept {
    return value << (32 - 8 * static_cast<unsigned>(bytes)) == 0;
  }
};

// One side of a copy or fill: what memory is after an address.

/// How the devices see the memory of an operand. A graph that was instantiated stays with it.
struct Placement {
  std::optional<Allocation::Kind> kind;  ///< none: pageable; registered memory counts as pinned
  int device = 0;                        ///< of the context that it was allocated in
  CUcontext context = nullptr;

  friend bool operator==(const Placement&, const Placement&) = default;
};

struct Operand {
  std::uintptr_t address = 0;
  AllocationPtr allocation;  ///< null: pageable host memory
  MemoryId location;
  std::vector<AllocationPtr> further;  ///< mappings after `allocation` that the range runs on into

  /// The bytes from `offset` on that lie together; no limit for pageable memory.
  [[nodiscard]] std::size_t run(std::size_t offset) const;
  /// Whose these bytes are; null: pageable.
  [[nodiscard]] const Allocation* at(std::size_t offset) const;
  [[nodiscard]] MemoryId location_at(std::size_t offset) const;
  /// Bytes that lie together.
  [[nodiscard]] const std::byte* read(std::size_t offset, std::size_t bytes) const;
  [[nodiscard]] std::byte* overwrite(std::size_t offset, std::size_t bytes) const;
  [[nodiscard]] Placement placement() const;
};

/// The memory at [address, address + bytes). What the driver does not know is pageable memory,
/// which lies at `pageable_location`. Failure INVALID_VALUE for a range that was freed or runs over
/// the bounds of an allocation, but from one mapping into the next of the same reservation.
Operand find_operand(const Memory& memory, std::uintptr_t address, std::size_t bytes,
                     MemoryId pageable_location);

}  // namespace polypath::sim
