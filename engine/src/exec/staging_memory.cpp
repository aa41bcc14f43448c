#include "exec/staging_memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>

#include "base/parallel_for.hpp"
#include "base/units.hpp"
#include "driver/check.hpp"
#include "driver/context_guard.hpp"
#include "exec/numa_binding.hpp"

namespace polypath {
namespace {

constexpr std::uint64_t kTouchedByThread = 4 * kMiB;

bool has_mappings(const CudaDriver& driver) {
  return driver.mem_create != nullptr && driver.mem_release != nullptr &&
         driver.mem_address_reserve != nullptr && driver.mem_address_free != nullptr &&
         driver.mem_map != nullptr && driver.mem_unmap != nullptr &&
         driver.mem_set_access != nullptr && driver.mem_get_allocation_granularity != nullptr;
}

bool supports(const CudaDriver& driver, int gpu, CUdevice_attribute what) {
  int supported = 0;
  return driver.device_get_attribute(&supported, what, gpu) == CUDA_SUCCESS && supported != 0;
}

CUmemLocation location_of(MemoryId memory, int domain) {
  CUmemLocation location{};
  location.type = memory.is_gpu() ? CU_MEM_LOCATION_TYPE_DEVICE : CU_MEM_LOCATION_TYPE_HOST_NUMA;
  location.id = memory.is_gpu() ? memory.index : std::max(0, domain);
  return location;
}

CUmemAllocationProp properties_of(const CUmemLocation& location) {
  CUmemAllocationProp what{};
  what.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  what.location = location;
  return what;
}

/// What mapped memory is a multiple of, in bytes.
std::uint64_t granularity_of(const CudaDriver& driver, const CUmemLocation& location) {
  const CUmemAllocationProp what = properties_of(location);
  std::size_t unit = 0;
  POLYPATH_CHECK(driver,
                 mem_get_allocation_granularity(&unit, &what, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  return unit;
}

}  // namespace

/// The one place that decides how staging memory is made.
StagingMemory::Kind StagingMemory::kind_for(MemoryId memory, int gpu) const {
  const bool mappings =
      has_mappings(*driver_) &&
      supports(*driver_, gpu, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
  if (memory.is_gpu()) return mappings ? Kind::mapped : Kind::allocated;
  if (mappings &&
      supports(*driver_, gpu, CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED))
    return Kind::mapped;
  return mappings ? Kind::registered : Kind::allocated;
}

StagingMemory::StagingMemory(std::shared_ptr<const CudaDriver> driver, const Node& node,
                             MemoryId memory, std::uint64_t bytes, int gpu, CUcontext context,
                             PinnedBudget& pinned)
    : driver_(std::move(driver)), is_gpu_(memory.is_gpu()), bytes_(bytes), context_(context) {
  ContextGuard guard(*driver_);
  guard.use(context_);
  const int domain = is_gpu_ ? -1 : node.hosts[static_cast<std::size_t>(memory.index)].numa;
  kind_ = kind_for(memory, gpu);
  const std::uint64_t unit =
      kind_ == Kind::mapped ? granularity_of(*driver_, location_of(memory, domain)) : 1;
  bytes_ = (bytes_ + unit - 1) / unit * unit;
  if (!is_gpu_) share_ = pinned.take(bytes_);
  switch (kind_) {
    case Kind::allocated: allocate(memory, domain); break;
    case Kind::registered: register_pages(domain); break;
    case Kind::mapped: map(location_of(memory, domain)); break;
  }
}

StagingMemory::~StagingMemory() {
  if (is_left_) return;
  if (abandoned_) {
    if (kind_ == Kind::registered) munmap(reinterpret_cast<void*>(address_), bytes_);
    return;
  }
  try {
    ContextGuard guard(*driver_);
    guard.use(context_);
    void* const pages = reinterpret_cast<void*>(address_);
    switch (kind_) {
      case Kind::allocated:
        if (is_gpu_) {
          POLYPATH_WARN(*driver_, mem_free(address_));
        } else {
          POLYPATH_WARN(*driver_, mem_free_host(pages));
        }
        break;
      case Kind::registered:
        POLYPATH_WARN(*driver_, mem_host_unregister(pages));
        munmap(pages, bytes_);
        break;
      case Kind::mapped:
        POLYPATH_WARN(*driver_, mem_unmap(address_, bytes_));
        POLYPATH_WARN(*driver_, mem_address_free(address_, bytes_));
        POLYPATH_WARN(*driver_, mem_release(handle_));
        break;
    }
  } catch (const DriverError& error) {
    warn_driver_error(*driver_, static_cast<CUresult>(error.code()), "freeing staging memory");
  }
}

void StagingMemory::allocate(MemoryId memory, int domain) {
  if (memory.is_gpu()) {
    POLYPATH_CHECK(*driver_, mem_alloc(&address_, bytes_));
    return;
  }
  const NumaBinding near(domain);
  void* pages = nullptr;
  POLYPATH_CHECK(*driver_, mem_host_alloc(&pages, bytes_, CU_MEMHOSTALLOC_PORTABLE));
  address_ = reinterpret_cast<CUdeviceptr>(pages);
}

/// By several threads: the system makes a page at its first use, at 1 to 2 GB/s a thread.
void StagingMemory::touch(int domain) const {
  const auto part = [&](std::uint64_t begin, std::uint64_t end) {
    const NumaBinding near(domain);
    std::memset(reinterpret_cast<std::byte*>(address_) + begin, 0, end - begin);
  };
  try {
    parallel_for(bytes_, kTouchedByThread, part);
  } catch (const std::exception&) {
    part(0, bytes_);  // no threads
  }
}

void StagingMemory::register_pages(int domain) {
  void* const pages =
      mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED)
    throw DriverError("no pages for staging memory", static_cast<int>(CUDA_ERROR_OUT_OF_MEMORY));
  // GPUs write to the pages that they know: a child must not share them, or this process would get
  // copies in their place.
  madvise(pages, bytes_, MADV_DONTFORK);
  address_ = reinterpret_cast<CUdeviceptr>(pages);
  touch(domain);
  const CUresult result = driver_->mem_host_register(pages, bytes_, CU_MEMHOSTREGISTER_PORTABLE);
  if (result != CUDA_SUCCESS) {
    munmap(pages, bytes_);
    throw_driver_error(*driver_, result, "mem_host_register(pages, bytes_)", __FILE__, __LINE__);
  }
}

void StagingMemory::map(const CUmemLocation& location) {
  const CUmemAllocationProp what = properties_of(location);
  POLYPATH_CHECK(*driver_, mem_create(&handle_, bytes_, &what, 0));
  bool is_mapped = false;
  try {
    POLYPATH_CHECK(*driver_, mem_address_reserve(&address_, bytes_, 0, 0, 0));
    POLYPATH_CHECK(*driver_, mem_map(address_, bytes_, 0, handle_, 0));
    is_mapped = true;
    CUmemAccessDesc own{};
    own.location = location;
    own.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    POLYPATH_CHECK(*driver_, mem_set_access(address_, bytes_, &own, 1));
  } catch (...) {
    if (is_mapped) POLYPATH_WARN(*driver_, mem_unmap(address_, bytes_));
    if (address_ != 0) POLYPATH_WARN(*driver_, mem_address_free(address_, bytes_));
    POLYPATH_WARN(*driver_, mem_release(handle_));
    throw;
  }
}

void StagingMemory::enable_access(int gpu) {
  if (kind_ != Kind::mapped) return;
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = gpu;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  POLYPATH_CHECK(*driver_, mem_set_access(address_, bytes_, &access, 1));
}

}  // namespace polypath
