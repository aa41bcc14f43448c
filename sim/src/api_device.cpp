// cuInit, versions, devices.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "call.hpp"
#include "device_traits.hpp"

using namespace polypath::sim;

namespace {

const polypath::Gpu& gpu_of(Driver& driver, CUdevice device) {
  return driver.node.gpus[static_cast<std::size_t>(check_device(driver.node, device))];
}

void copy_text(const std::string& text, char* buffer, int length) {
  require(buffer != nullptr && length > 0, CUDA_ERROR_INVALID_VALUE);
  const std::size_t size = std::min(text.size(), static_cast<std::size_t>(length) - 1);
  std::memcpy(buffer, text.data(), size);
  buffer[size] = '\0';
}

/// NVLink or NVLink-C2C to the CPU: the GPU walks the CPU's page tables then.
bool is_coherent_with_cpu(const polypath::Node& node, int device) {
  return std::any_of(node.links.begin(), node.links.end(), [device](const polypath::Link& link) {
    return link.from == polypath::MemoryId::gpu(device) && link.to.is_host() &&
           link.type != polypath::LinkType::pcie;
  });
}

int compute_mode(const Mode& mode) {
  switch (mode.compute) {
    case Mode::Compute::standard: return CU_COMPUTEMODE_DEFAULT;
    case Mode::Compute::exclusive_process: return CU_COMPUTEMODE_EXCLUSIVE_PROCESS;
    case Mode::Compute::prohibited: return CU_COMPUTEMODE_PROHIBITED;
  }
  throw Failure{CUDA_ERROR_UNKNOWN};
}

int attribute(Driver& driver, CUdevice_attribute name, CUdevice device) {
  const polypath::Gpu& gpu = gpu_of(driver, device);
  const DeviceTraits& traits = device_traits(gpu.name);
  unsigned domain = 0;
  unsigned bus = 0;
  unsigned slot = 0;
  std::sscanf(pci_bus_id(driver.node, device).c_str(), "%x:%x:%x", &domain, &bus, &slot);
  // Any other attribute is reported on stderr as not supported.
  switch (static_cast<int>(name)) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: return traits.compute_major;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: return traits.compute_minor;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: return traits.multiprocessors;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE: return 32;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: return 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: return 2048;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: return 48 << 10;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: return traits.shared_bytes_of_block;
    case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID: return static_cast<int>(domain);
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: return static_cast<int>(bus);
    case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID: return static_cast<int>(slot);
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID:
      return driver.node.hosts[static_cast<std::size_t>(gpu.numa)].numa;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT: return 3;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE: return compute_mode(driver.mode);
    case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS:
    case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES:
      return is_coherent_with_cpu(driver.node, device) ? 1 : 0;
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GPU_OVERLAP:
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED: return 1;
    case CU_DEVICE_ATTRIBUTE_INTEGRATED:
    case CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR: return 0;
  }
  fail_not_supported(fmt::format("cuDeviceGetAttribute({})", static_cast<int>(name)).c_str());
}

}  // namespace

CUresult cuInit(unsigned int flags) {
  return guarded([flags] {
    require(flags == 0, CUDA_ERROR_INVALID_VALUE);
    initialise_driver();
    forbid_children();
  });
}

CUresult cuDriverGetVersion(int* version) {
  return guarded([&] { out(version) = kCudaVersion; });
}

CUresult cuDeviceGetCount(int* count) {
  return call([&](Driver& driver) { out(count) = static_cast<int>(driver.node.gpus.size()); });
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  return call([&](Driver& driver) { out(device) = check_device(driver.node, ordinal); });
}

CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  return call([&](Driver& driver) { copy_text(gpu_of(driver, device).name, name, length); });
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  return call([&](Driver& driver) {
    const std::string text =
        fmt::format("{:<12.12}sim{}", driver.node.name, check_device(driver.node, device));
    out(uuid) = {};
    std::memcpy(uuid->bytes, text.data(), std::min(text.size(), sizeof uuid->bytes));
  });
}

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
  return call([&](Driver& driver) { out(bytes) = gpu_of(driver, device).memory_bytes; });
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute name, CUdevice device) {
  return call([&](Driver& driver) { out(value) = attribute(driver, name, device); });
}

CUresult cuDeviceGetPCIBusId(char* text, int length, CUdevice device) {
  return call([&](Driver& driver) {
    copy_text(pci_bus_id(driver.node, check_device(driver.node, device)), text, length);
  });
}

CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  return call([&](Driver& driver) {
    out(can) = has_peer_link(driver.node, check_device(driver.node, device),
                             check_device(driver.node, peer))
                   ? 1
                   : 0;
  });
}

CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute name, CUdevice device,
                                 CUdevice peer) {
  return call([&](Driver& driver) {
    check_device(driver.node, device);
    check_device(driver.node, peer);
    require(device != peer, CUDA_ERROR_INVALID_DEVICE);
    const int linked = has_peer_link(driver.node, device, peer) ? 1 : 0;
    switch (static_cast<int>(name)) {
      case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK: out(value) = 0; return;
      case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED: out(value) = linked; return;
      case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED: out(value) = linked; return;
    }
    fail_not_supported("cuDeviceGetP2PAttribute of this attribute");
  });
}
