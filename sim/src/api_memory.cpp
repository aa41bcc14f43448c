// Allocation of device, managed and host memory; registration; memory information.
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <optional>

#include "call.hpp"
#include "topology/node.hpp"

namespace polypath::sim {
namespace {

constexpr unsigned long kMaxDomains = 1024;  // as many as the kernel's mask may have

/// The operating system's number of the one domain that the thread's policy names.
std::optional<int> policy_domain() {
  int mode = MPOL_DEFAULT;
  std::array<unsigned long, kMaxDomains / 64> mask{};
  if (::syscall(SYS_get_mempolicy, &mode, mask.data(), kMaxDomains, nullptr, 0) != 0)
    return std::nullopt;
  if (mode != MPOL_PREFERRED && mode != MPOL_BIND) return std::nullopt;
  std::optional<int> domain;
  for (std::size_t i = 0; i < mask.size(); ++i) {
    if (mask[i] == 0) continue;
    if (domain || !std::has_single_bit(mask[i])) return std::nullopt;
    domain = static_cast<int>(i) * 64 + std::countr_zero(mask[i]);
  }
  return domain;
}

/// In which NUMA domain new host memory lies: the one that the calling thread's memory policy
/// prefers or is bound to, when it names exactly one and the node has it; otherwise that of the
/// current context's GPU, where a program that is bound to its GPU's processor would find it.
MemoryId place_host_memory(const Node& node, int device) {
  if (const std::optional<int> domain = policy_domain())
    for (std::size_t i = 0; i < node.hosts.size(); ++i)
      if (node.hosts[i].numa == *domain) return MemoryId::host(static_cast<int>(i));
  return MemoryId::host(node.gpus[static_cast<std::size_t>(device)].numa);
}

}  // namespace
}  // namespace polypath::sim

using namespace polypath::sim;

using polypath::MemoryId;

namespace {

constexpr std::size_t kMaxHostBytes = std::size_t{1} << 44;

AllocationPtr allocate(Driver& driver, Allocation::Kind kind, std::size_t bytes) {
  const Context& context = driver.contexts().current();
  driver.captures().require_unsafe_calls_allowed();
  require(bytes > 0, CUDA_ERROR_INVALID_VALUE);
  Allocation allocation;
  allocation.kind = kind;
  allocation.bytes = bytes;
  allocation.device = context.device;
  allocation.context = context.handle;
  // Managed memory does not migrate here: it stays in host memory.
  allocation.location = kind == Allocation::Kind::device
                            ? MemoryId::gpu(context.device)
                            : place_host_memory(driver.node, context.device);
  require(!allocation.location.is_host() || bytes <= kMaxHostBytes, CUDA_ERROR_OUT_OF_MEMORY);
  return driver.memory().add(std::move(allocation));
}

void end_allocation(Driver& driver, std::uintptr_t address,
                    std::initializer_list<Allocation::Kind> kinds, CUresult otherwise) {
  AllocationPtr allocation = driver.memory().find_base(address, kinds, otherwise);
  driver.captures().require_unsafe_calls_allowed();
  driver.deallocator().free(std::move(allocation));
}

}  // namespace

CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
  return call([&](Driver& driver) {
    CUdeviceptr& result = out(address);
    result = allocate(driver, Allocation::Kind::device, bytes)->base;
  });
}

CUresult cuMemAllocManaged(CUdeviceptr* address, size_t bytes, unsigned int flags) {
  return call([&](Driver& driver) {
    require(flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST, CUDA_ERROR_INVALID_VALUE);
    CUdeviceptr& result = out(address);
    result = allocate(driver, Allocation::Kind::managed, bytes)->base;
  });
}

CUresult cuMemFree_v2(CUdeviceptr address) {
  return call([&](Driver& driver) {
    driver.contexts().current();
    if (address == 0) return;
    end_allocation(driver, address,
                   {Allocation::Kind::device, Allocation::Kind::pool, Allocation::Kind::managed},
                   CUDA_ERROR_INVALID_VALUE);
  });
}

CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  return call([&](Driver& driver) {
    const int device = driver.contexts().current().device;
    if (free != nullptr) *free = driver.memory().free_bytes(device);
    if (total != nullptr) *total = driver.node.gpus[static_cast<std::size_t>(device)].memory_bytes;
  });
}

CUresult cuMemHostAlloc(void** address, size_t bytes, unsigned int flags) {
  return call([&](Driver& driver) {
    constexpr unsigned kFlags =
        CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    require((flags & ~kFlags) == 0, CUDA_ERROR_INVALID_VALUE);
    void*& result = out(address);
    result = std::bit_cast<void*>(allocate(driver, Allocation::Kind::pinned, bytes)->base);
    driver.devices().take_long(pin_us(bytes));
  });
}

CUresult cuMemFreeHost(void* address) {
  return call([&](Driver& driver) {
    driver.contexts().current();
    if (address == nullptr) return;
    end_allocation(driver, std::bit_cast<std::uintptr_t>(address), {Allocation::Kind::pinned},
                   CUDA_ERROR_INVALID_VALUE);
  });
}

CUresult cuMemHostRegister_v2(void* address, size_t bytes, unsigned int flags) {
  return call([&](Driver& driver) {
    const Context& context = driver.contexts().current();
    driver.captures().require_unsafe_calls_allowed();
    constexpr unsigned kFlags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
    if ((flags & ~kFlags) != 0) fail_not_supported("cuMemHostRegister of I/O or read-only memory");
    require(address != nullptr && bytes > 0, CUDA_ERROR_INVALID_VALUE);
    Allocation allocation;
    allocation.kind = Allocation::Kind::registered;
    allocation.base = std::bit_cast<std::uintptr_t>(address);
    allocation.bytes = bytes;
    allocation.device = context.device;
    allocation.context = context.handle;
    allocation.location = place_host_memory(driver.node, context.device);
    require(driver.memory().find_overlap(allocation.base, bytes) == nullptr,
            CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    require(!driver.memory().owns(allocation.base), CUDA_ERROR_INVALID_VALUE);
    driver.memory().add(std::move(allocation));
    driver.devices().take_long(pin_us(bytes));
  });
}

CUresult cuMemHostUnregister(void* address) {
  return call([&](Driver& driver) {
    driver.contexts().current();
    end_allocation(driver, std::bit_cast<std::uintptr_t>(address), {Allocation::Kind::registered},
                   CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  });
}
