#include "core/pointer_info.hpp"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "driver/check.hpp"

namespace polypath {
namespace {

bool page_is_readable(CUdeviceptr address) noexcept {
  char byte = 0;
  iovec local{&byte, 1};
  iovec remote{reinterpret_cast<void*>(address), 1};
  return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == 1 || errno != EFAULT;
}

}  // namespace

PointerInfo inspect(const CudaDriver& driver, CUdeviceptr address) {
  unsigned int type = 0;
  int ordinal = -1;
  unsigned int managed = 0;
  CUdeviceptr start = 0;
  std::size_t size = 0;
  CUcontext context = nullptr;
  CUmemoryPool pool = nullptr;
  unsigned int ipc_capable = 0;
  unsigned long long buffer = 0;
  std::array attributes{
      CU_POINTER_ATTRIBUTE_MEMORY_TYPE,    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
      CU_POINTER_ATTRIBUTE_IS_MANAGED,     CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
      CU_POINTER_ATTRIBUTE_RANGE_SIZE,     CU_POINTER_ATTRIBUTE_CONTEXT,
      CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
      CU_POINTER_ATTRIBUTE_BUFFER_ID};
  std::array<void*, attributes.size()> values{&type,    &ordinal, &managed,     &start, &size,
                                              &context, &pool,    &ipc_capable, &buffer};
  POLYPATH_CHECK(driver, pointer_get_attributes(static_cast<unsigned int>(attributes.size()),
                                                attributes.data(), values.data(), address));
  PointerInfo info;
  if (managed != 0) {
    info.kind = PointerInfo::Kind::managed;
  } else if (type == CU_MEMORYTYPE_DEVICE) {
    info.kind = PointerInfo::Kind::device;
  } else if (type == CU_MEMORYTYPE_HOST) {
    info.kind = PointerInfo::Kind::pinned;
  } else {
    return info;  // the other values are whatever the driver left there
  }
  info.gpu = ordinal;
  info.start = start;
  info.bytes = size;
  info.context = context;
  info.pool = pool;
  info.buffer = buffer;
  info.plain = ipc_capable != 0 && pool == nullptr;
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
  return info;
}

bool is_readable(CUdeviceptr address, std::uint64_t bytes) noexcept {
  return page_is_readable(address) && page_is_readable(address + bytes - 1);
}

int numa_domain_of(CUdeviceptr address) noexcept {
  int domain = -1;
  if (syscall(SYS_get_mempolicy, &domain, nullptr, 0, reinterpret_cast<void*>(address),
              MPOL_F_NODE | MPOL_F_ADDR) != 0)
    return -1;
  return domain;
}

}  // namespace polypath
