#include "cuda/sequences.hpp"

#include <atomic>
#include <cstdint>
#include <cstring>
#include <initializer_list>

#include "cuda/intercepted.hpp"
#include "gate/loaded_objects.hpp"

namespace polypath::preload {
namespace {

/// Functions of the driver that put nothing on a stream but event records, without the suffixes of
/// their versions and default streams; in the order of strcmp().
constexpr const char* kQuiet[] = {
    "cuCtxAttach",
    "cuCtxCreate",
    "cuCtxDestroy",
    "cuCtxDetach",
    "cuCtxDisablePeerAccess",
    "cuCtxEnablePeerAccess",
    "cuCtxGetApiVersion",
    "cuCtxGetCacheConfig",
    "cuCtxGetCurrent",
    "cuCtxGetDevice",
    "cuCtxGetFlags",
    "cuCtxGetId",
    "cuCtxGetLimit",
    "cuCtxGetStreamPriorityRange",
    "cuCtxPopCurrent",
    "cuCtxPushCurrent",
    "cuCtxSetCacheConfig",
    "cuCtxSetCurrent",
    "cuCtxSetFlags",
    "cuCtxSetLimit",
    "cuCtxSynchronize",
    "cuDeviceCanAccessPeer",
    "cuDeviceComputeCapability",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetByPCIBusId",
    "cuDeviceGetCount",
    "cuDeviceGetDefaultMemPool",
    "cuDeviceGetLuid",
    "cuDeviceGetMemPool",
    "cuDeviceGetName",
    "cuDeviceGetP2PAttribute",
    "cuDeviceGetPCIBusId",
    "cuDeviceGetProperties",
    "cuDeviceGetUuid",
    "cuDevicePrimaryCtxGetState",
    "cuDevicePrimaryCtxRelease",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxSetFlags",
    "cuDeviceSetMemPool",
    "cuDeviceTotalMem",
    "cuDriverGetVersion",
    "cuEventCreate",
    "cuEventDestroy",
    "cuEventElapsedTime",
    "cuEventQuery",
    "cuEventRecord",
    "cuEventRecordWithFlags",
    "cuEventSynchronize",
    "cuFlushGPUDirectRDMAWrites",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuInit",
    "cuIpcGetEventHandle",
    "cuIpcOpenEventHandle",
    "cuMemAddressFree",
    "cuMemAddressReserve",
    "cuMemAdvise",
    "cuMemAlloc",
    "cuMemAllocHost",
    "cuMemAllocManaged",
    "cuMemAllocPitch",
    "cuMemCreate",
    "cuMemExportToShareableHandle",
    "cuMemFree",
    "cuMemFreeHost",
    "cuMemGetAccess",
    "cuMemGetAddressRange",
    "cuMemGetAllocationGranularity",
    "cuMemGetAllocationPropertiesFromHandle",
    "cuMemGetHandleForAddressRange",
    "cuMemGetInfo",
    "cuMemHostAlloc",
    "cuMemHostGetDevicePointer",
    "cuMemHostGetFlags",
    "cuMemHostRegister",
    "cuMemHostUnregister",
    "cuMemImportFromShareableHandle",
    "cuMemMap",
    "cuMemPoolCreate",
    "cuMemPoolDestroy",
    "cuMemPoolExportPointer",
    "cuMemPoolExportToShareableHandle",
    "cuMemPoolGetAccess",
    "cuMemPoolGetAttribute",
    "cuMemPoolImportFromShareableHandle",
    "cuMemPoolImportPointer",
    "cuMemPoolSetAccess",
    "cuMemPoolSetAttribute",
    "cuMemPoolTrimTo",
    "cuMemRangeGetAttribute",
    "cuMemRangeGetAttributes",
    "cuMemRelease",
    "cuMemRetainAllocationHandle",
    "cuMemSetAccess",
    "cuMemUnmap",
    "cuMulticastAddDevice",
    "cuMulticastBindAddr",
    "cuMulticastBindMem",
    "cuMulticastCreate",
    "cuMulticastGetGranularity",
    "cuMulticastUnbind",
    "cuPointerGetAttribute",
    "cuPointerGetAttributes",
    "cuPointerSetAttribute",
    "cuProfilerStart",
    "cuProfilerStop",
    "cuStreamGetCtx",
    "cuStreamGetDevice",
    "cuStreamGetFlags",
    "cuStreamGetId",
    "cuStreamGetPriority",
    "cuStreamIsCapturing",
    "cuStreamQuery",
    "cuStreamSynchronize",
    "cuThreadExchangeStreamCaptureMode",
};

/// What names of functions end in, and their meaning for streams does not depend on.
constexpr const char* kSuffixes[] = {"_ptsz", "_ptds", "_v2", "_v3", "_v4"};

/// Compares `name`, cut to `length`, as strcmp() does.
int compare(const char* name, std::size_t length, const char* other) noexcept {
  const int order = std::strncmp(name, other, length);
  return order != 0 ? order : -static_cast<int>(other[length] != '\0');
}

bool is_quiet(const char* name) noexcept {
  std::size_t length = std::strlen(name);
  for (const char* const suffix : kSuffixes) {
    const std::size_t end = std::strlen(suffix);
    if (length > end && std::memcmp(name + length - end, suffix, end) == 0) length -= end;
  }
  std::size_t from = 0;
  std::size_t to = sizeof kQuiet / sizeof *kQuiet;
  while (from < to) {
    const std::size_t middle = (from + to) / 2;
    const int order = compare(name, length, kQuiet[middle]);
    if (order == 0) return true;
    if (order < 0)
      to = middle;
    else
      from = middle + 1;
  }
  return false;
}

bool starts_with(const char* name, const char* prefix) noexcept {
  return std::strncmp(name, prefix, std::strlen(prefix)) == 0;
}

bool may_refer_to(const char* name) noexcept {
  if (starts_with(name, "cu")) return find_exported(name) != nullptr || is_quiet(name);
  for (const char* const prefix : {"nccl", "nvshmem", "npp", "nvjpeg", "dlvsym", "dlmopen"})
    if (starts_with(name, prefix)) return false;
  return true;
}

/// Where functions were looked up that may put work on a stream unseen. Slots are filled from that
/// of their hash on.
constexpr std::size_t kLookups = 256;
constinit std::atomic<const void*> lookups[kLookups]{};
constinit std::atomic<bool> are_lookups_full{false};

bool has_looked_up(const LoadedObject& object) noexcept {
  if (are_lookups_full.load()) return true;
  for (const auto& slot : lookups)
    if (const void* const caller = slot.load(); caller != nullptr && object.holds(caller))
      return true;
  return false;
}

bool is_itself_transparent(const LoadedObject& object) noexcept {
  return object.is_library() && !has_looked_up(object) &&
         object.all_references([](const char* name) { return may_refer_to(name); });
}

/// The object and all that need it, which can call it by name.
bool are_transparent(const LoadedObject& first) noexcept {
  constexpr std::size_t kMaxObjects = 16;
  const LoadedObject* objects[kMaxObjects] = {&first};
  alignas(LoadedObject) unsigned char memory[kMaxObjects][sizeof(LoadedObject)];
  std::size_t count = 1;
  for (std::size_t next = 0; next < count; ++next) {
    const bool is_any_opaque = any_loaded_object([&](const LoadedObject& other) {
      if (!other.needs(*objects[next])) return false;
      for (std::size_t i = 0; i < count; ++i)
        if (objects[i]->is(other)) return false;
      if (count == kMaxObjects || !is_itself_transparent(other)) return true;
      std::memcpy(memory[count], static_cast<const void*>(&other), sizeof other);
      objects[count] = reinterpret_cast<const LoadedObject*>(memory[count]);
      ++count;
      return false;
    });
    if (is_any_opaque) return false;
  }
  return true;
}

}  // namespace

bool is_transparent(const void* caller, const char* maker) noexcept {
  // The lookups inside are so of objects that all stay.
  return any_loaded_object([&](const LoadedObject& object) {
    if (!object.holds(caller)) return false;
    auto is_other = [&](const char* name) { return std::strcmp(name, maker) != 0; };
    return is_itself_transparent(object) && !object.all_references(is_other) &&
           are_transparent(object);
  });
}

bool add_lookup(const char* name, const void* caller) noexcept {
  if (is_quiet(name) || are_lookups_full.load(std::memory_order_relaxed)) return false;
  const std::size_t hash = (reinterpret_cast<std::uintptr_t>(caller) * 0x9E3779B97F4A7C15U) >> 56U;
  for (std::size_t i = 0; i < kLookups; ++i) {
    std::atomic<const void*>& slot = lookups[(hash + i) % kLookups];
    const void* seen = slot.load();
    if (seen == nullptr && slot.compare_exchange_strong(seen, caller)) return true;
    if (seen == caller) return false;
  }
  are_lookups_full.store(true);
  return true;
}

}  // namespace polypath::preload
