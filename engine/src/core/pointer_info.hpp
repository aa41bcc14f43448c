// What an address is: on which memory it lies, and in which allocation.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "core/shared_mappings.hpp"
#include "exec/imported_memory.hpp"

namespace polypath {

struct PointerInfo {
  enum class Kind : std::uint8_t {
    device,   ///< memory of one GPU
    pinned,   ///< page-locked host memory
    managed,  ///< memory that the driver moves by itself
    unknown,  ///< nothing that CUDA knows: pageable host memory, or nothing at all
  };
  Kind kind = Kind::unknown;
  int gpu = -1;  ///< of device memory; -1 where another process has it, and does not say
  CUcontext context = nullptr;    ///< that it was allocated in; null for pools and mappings
  CUdeviceptr start = 0;          ///< of its allocation
  std::uint64_t bytes = 0;        ///< of its allocation
  unsigned long long buffer = 0;  ///< the driver's number of its allocation, never given out twice
  CUmemoryPool pool = nullptr;
  bool plain = false;   ///< from cuMemAlloc: peer access of its context reaches it
  bool mapped = false;  ///< by cuMemMap: every mapping has its own place and access rules
  std::shared_ptr<ImportedMemory> import;  ///< null for memory of this process
};

/// What the driver says: of imported memory it names the GPU of the context that opened it.
PointerInfo inspect(const CudaDriver& driver, CUdeviceptr address);
/// As above, but names the GPU that holds imported memory.
PointerInfo inspect(const CudaDriver& driver, ImportedMemories& imports, CUdeviceptr address);

/// One address in each mapping of a range of mapped memory, which begins at `address` where `first`
/// was found; nothing when they are not all of the kind and GPU of `first`, or there is none
/// somewhere. Mappings may be made and unmade at any time, so the answer must not be kept.
std::optional<std::vector<CUdeviceptr>> mappings_of(const CudaDriver& driver,
                                                    const PointerInfo& first, CUdeviceptr address,
                                                    std::uint64_t bytes);

/// Which GPUs may read and write a range, by the access rules of pools and mappings; all may reach
/// other memory, given peer access. Asks the driver once a GPU. For one thread.
class Access {
 public:
  Access() = default;
  explicit Access(CUmemoryPool pool) : pool_(pool) {}
  /// `shared`: which of the mappings other GPUs may be given; it must outlive this.
  Access(std::vector<CUdeviceptr> mappings, SharedMappings& shared)
      : mappings_(std::move(mappings)), shared_(&shared) {}
  /// Whether the GPU has access now.
  [[nodiscard]] bool granted(const CudaDriver& driver, int gpu) const;
  /// Whether it has, or may be given it.
  [[nodiscard]] bool possible(const CudaDriver& driver, int gpu) const;
  /// Whether it has, after it was given it where that may be and pays (SharedMappings::give). For a
  /// GPU that copies now.
  [[nodiscard]] bool obtain(const CudaDriver& driver, int gpu, double saved_us) const;

 private:
  CUmemoryPool pool_ = nullptr;
  std::vector<CUdeviceptr> mappings_;
  SharedMappings* shared_ = nullptr;
  mutable std::map<int, bool> known_;
};

/// Whether [address, address + bytes) can be read by this process; true when the kernel does not
/// tell.
bool is_readable(CUdeviceptr address, std::uint64_t bytes) noexcept;

/// The NUMA domain (the operating system's number) of the page at `address`, or -1 when unknown.
int numa_domain_of(CUdeviceptr address) noexcept;

}  // namespace polypath
