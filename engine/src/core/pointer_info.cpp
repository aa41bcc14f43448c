#include "core/pointer_info.hpp"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/units.hpp"
#include "driver/pointer_attributes.hpp"

namespace polypath {
namespace {

/// No driver maps in smaller pieces.
constexpr CUdeviceptr kMinMapping = 2 * kMiB;

/// After `at` no mapping begins before this address.
CUdeviceptr end_of_mapping(const CudaDriver& driver, const PointerInfo& info, CUdeviceptr at) {
  const auto mapping = mapping_at(driver, at);
  // What is as large as the reservation may be the reservation: drivers before CUDA 11.7 know no
  // more.
  const bool one_of_several =
      mapping && (mapping->begin != info.start || mapping->end - mapping->begin != info.bytes);
  return one_of_several ? mapping->end : (at / kMinMapping + 1) * kMinMapping;
}

}  // namespace

PointerInfo inspect(const CudaDriver& driver, CUdeviceptr address) {
  PointerAttributes attributes;
  attributes.ask(driver, address);
  PointerInfo info;
  if (attributes.managed != 0) {
    info.kind = PointerInfo::Kind::managed;
  } else if (attributes.type == CU_MEMORYTYPE_DEVICE) {
    info.kind = PointerInfo::Kind::device;
  } else if (attributes.type == CU_MEMORYTYPE_HOST) {
    info.kind = PointerInfo::Kind::pinned;
  } else {
    return info;  // the other values are undefined
  }
  info.gpu = attributes.ordinal;
  info.start = attributes.start;
  info.bytes = attributes.bytes;
  info.context = attributes.context;
  info.pool = attributes.pool;
  info.buffer = attributes.buffer;
  info.plain = attributes.plain();
  // Pinned memory has a context, that it was allocated or registered in.
  info.mapped = !info.plain && attributes.pool == nullptr && attributes.managed == 0 &&
                (info.kind == PointerInfo::Kind::device || attributes.context == nullptr);
  return info;
}

PointerInfo inspect(const CudaDriver& driver, ImportedMemories& imports, CUdeviceptr address) {
  PointerInfo info = inspect(driver, address);
  if (info.kind != PointerInfo::Kind::device) return info;
  info.import = imports.find(address, info.buffer);
  if (info.import == nullptr) return info;
  info.gpu = info.import->holder();
  info.start = info.import->start();
  info.bytes = info.import->bytes();
  info.context = info.import->context();
  info.buffer = info.import->buffer();
  info.plain = false;
  info.mapped = false;
  return info;
}

std::optional<std::vector<CUdeviceptr>> mappings_of(const CudaDriver& driver,
                                                    const PointerInfo& first, CUdeviceptr address,
                                                    std::uint64_t bytes) {
  const CUdeviceptr end = address + bytes;
  std::vector<CUdeviceptr> mappings;
  for (CUdeviceptr at = address; at < end;) {
    const PointerInfo info = at == address ? first : inspect(driver, at);
    if (!info.mapped || info.kind != first.kind || info.gpu != first.gpu) return std::nullopt;
    mappings.push_back(at);
    at = end_of_mapping(driver, info, at);
  }
  return mappings;
}

bool Access::granted(const CudaDriver& driver, int gpu) const {
  if (pool_ == nullptr && mappings_.empty()) return true;
  const auto known = known_.find(gpu);
  if (known != known_.end()) return known->second;
  CUmemLocation location{};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = gpu;
  const auto by_pool = [&] {
    CUmemAccess_flags access = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return driver.mem_pool_get_access != nullptr &&
           driver.mem_pool_get_access(&access, pool_, &location) == CUDA_SUCCESS &&
           access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  };
  const auto by_mapping = [&](CUdeviceptr mapping) {
    return mapping_access(driver, mapping, gpu) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  };
  const bool granted = pool_ != nullptr ? by_pool() : std::ranges::all_of(mappings_, by_mapping);
  known_.emplace(gpu, granted);
  return granted;
}

bool Access::possible(const CudaDriver& driver, int gpu) const {
  return granted(driver, gpu) || (shared_ != nullptr && shared_->may_share(driver, mappings_));
}

bool Access::obtain(const CudaDriver& driver, int gpu, double saved_us) const {
  if (granted(driver, gpu)) return true;
  if (shared_ == nullptr || !shared_->give(driver, mappings_, gpu, saved_us)) return false;
  known_[gpu] = true;
  return true;
}

bool is_readable(CUdeviceptr address, std::uint64_t bytes) noexcept {
  const auto byte_at = [](CUdeviceptr at) { return iovec{reinterpret_cast<void*>(at), 1}; };
  std::array<char, 2> ends{};
  const iovec local{ends.data(), ends.size()};
  const std::array remote{byte_at(address), byte_at(address + bytes - 1)};
  const ssize_t read = process_vm_readv(getpid(), &local, 1, remote.data(), remote.size(), 0);
  return read == 2 || (read < 0 && errno != EFAULT);
}

int numa_domain_of(CUdeviceptr address) noexcept {
  int domain = -1;
  if (syscall(SYS_get_mempolicy, &domain, nullptr, 0, reinterpret_cast<void*>(address),
              MPOL_F_NODE | MPOL_F_ADDR) != 0)
    return -1;
  return domain;
}

}  // namespace polypath
