// The NVML functions that say how a node is wired. Link numbers of a GPU count its NVLink links in
// the order of the node's links, each as wide as it is; a GPU after an NVSwitch has its links to
// the switch, once.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <span>

#include "call.hpp"
#include "device_traits.hpp"

using namespace polypath::sim;
using polypath::Link;
using polypath::LinkType;
using polypath::MemoryId;

namespace {

constexpr const char* kDriverVersion = "580.0 (simulated)";
constexpr const char* kSwitchBusId = "0000:f0:00.0";
constexpr const char* kProcessorBusId = "0000:00:00.0";

struct NvmlFailure {
  nvmlReturn_t code;
};

void require_nvml(bool holds, nvmlReturn_t code) {
  if (!holds) throw NvmlFailure{code};
}

template <typename Body>
nvmlReturn_t nvml_call(Body&& body) noexcept {
  try {
    body();
    return NVML_SUCCESS;
  } catch (const NvmlFailure& failure) {
    return failure.code;
  } catch (const Failure& failure) {
    return failure.code == CUDA_ERROR_NOT_INITIALIZED ? NVML_ERROR_UNINITIALIZED
                                                      : NVML_ERROR_DRIVER_NOT_LOADED;
  } catch (...) {
    return NVML_ERROR_UNKNOWN;
  }
}

// A handle is the device's number and this mark.
constexpr std::uintptr_t kHandleMark = std::uintptr_t{0x51D0} << 48;

nvmlDevice_t encode(int device) {
  return std::bit_cast<nvmlDevice_t>(kHandleMark | static_cast<std::uintptr_t>(device));
}

int decode(nvmlDevice_t handle) {
  const std::uintptr_t device = std::bit_cast<std::uintptr_t>(handle) ^ kHandleMark;
  require_nvml(device < driver_instance().node.gpus.size(), NVML_ERROR_INVALID_ARGUMENT);
  return static_cast<int>(device);
}

template <typename T>
T& nvml_out(T* result) {
  require_nvml(result != nullptr, NVML_ERROR_INVALID_ARGUMENT);
  return *result;
}

nvmlPciInfo_t parse_bus_id(const std::string& text) {
  nvmlPciInfo_t info{};
  require_nvml(std::sscanf(text.c_str(), "%x:%x:%x", &info.domain, &info.bus, &info.device) == 3,
               NVML_ERROR_INVALID_ARGUMENT);
  const auto put = [](char* buffer, std::size_t size, const std::string& value) {
    value.copy(buffer, size - 1);
  };
  put(info.busId, sizeof info.busId,
      fmt::format("{:08X}:{:02X}:{:02X}.0", info.domain, info.bus, info.device));
  put(info.busIdLegacy, sizeof info.busIdLegacy,
      fmt::format("{:04X}:{:02X}:{:02X}.0", info.domain, info.bus, info.device));
  return info;
}

/// What lies at the other end of one NVLink link.
struct Remote {
  nvmlIntNvLinkDeviceType_t type;
  std::string bus_id;
};

std::vector<Remote> nvlinks(const polypath::Node& node, int device) {
  std::vector<Remote> remotes;
  int switch_width = 0;
  for (const Link& link : node.links) {
    if (link.from != MemoryId::gpu(device)) continue;
    const auto width = static_cast<std::size_t>(link.width);
    switch (link.type) {
      case LinkType::nvswitch: switch_width = std::max(switch_width, link.width); break;
      case LinkType::nvlink:
        remotes.insert(remotes.end(), width,
                       link.to.is_gpu()
                           ? Remote{NVML_NVLINK_DEVICE_TYPE_GPU, pci_bus_id(node, link.to.index)}
                           : Remote{NVML_NVLINK_DEVICE_TYPE_IBMNPU, kProcessorBusId});
        break;
      case LinkType::c2c:  // NVML does not count NVLink-C2C
      case LinkType::pcie:
      case LinkType::bounce: break;
    }
  }
  remotes.insert(remotes.end(), static_cast<std::size_t>(switch_width),
                 Remote{NVML_NVLINK_DEVICE_TYPE_SWITCH, kSwitchBusId});
  return remotes;
}

/// The link, or NVML_ERROR_NOT_SUPPORTED for a number that this GPU does not have.
Remote nvlink(nvmlDevice_t device, unsigned link) {
  const int index = decode(device);
  require_nvml(link < NVML_NVLINK_MAX_LINKS, NVML_ERROR_INVALID_ARGUMENT);
  const std::vector<Remote> remotes = nvlinks(driver_instance().node, index);
  require_nvml(link < remotes.size(), NVML_ERROR_NOT_SUPPORTED);
  return remotes[link];
}

unsigned known(int value) {
  require_nvml(value > 0, NVML_ERROR_NOT_SUPPORTED);
  return static_cast<unsigned>(value);
}

const polypath::Gpu& gpu_of(nvmlDevice_t device) {
  return driver_instance().node.gpus[static_cast<std::size_t>(decode(device))];
}

}  // namespace

nvmlReturn_t nvmlInit_v2() {
  return nvml_call([] { initialise_driver(); });
}

nvmlReturn_t nvmlShutdown() {
  return nvml_call([] { driver_instance(); });
}

const char* nvmlErrorString(nvmlReturn_t result) {
  // Unknown codes have a text as well, as in the real library.
  switch (static_cast<int>(result)) {
    case NVML_SUCCESS: return "Success";
    case NVML_ERROR_UNINITIALIZED: return "Uninitialized";
    case NVML_ERROR_INVALID_ARGUMENT: return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED: return "Not Supported";
    case NVML_ERROR_NOT_FOUND: return "Not Found";
    case NVML_ERROR_INSUFFICIENT_SIZE: return "Insufficient Size";
    case NVML_ERROR_DRIVER_NOT_LOADED: return "Driver Not Loaded";
  }
  return "Unknown Error";
}

nvmlReturn_t nvmlSystemGetDriverVersion(char* version, unsigned int length) {
  return nvml_call([=] {
    driver_instance();
    nvml_out(version);
    require_nvml(std::strlen(kDriverVersion) < length, NVML_ERROR_INSUFFICIENT_SIZE);
    std::strcpy(version, kDriverVersion);
  });
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int* count) {
  return nvml_call(
      [=] { nvml_out(count) = static_cast<unsigned>(driver_instance().node.gpus.size()); });
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t* device) {
  return nvml_call([=] {
    require_nvml(index < driver_instance().node.gpus.size(), NVML_ERROR_INVALID_ARGUMENT);
    nvml_out(device) = encode(static_cast<int>(index));
  });
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, nvmlDevice_t* device) {
  return nvml_call([=] {
    nvml_out(bus_id);
    nvml_out(device);
    const polypath::Node& node = driver_instance().node;
    const std::string bus = parse_bus_id(bus_id).busId;
    for (int i = 0; i < static_cast<int>(node.gpus.size()); ++i) {
      if (parse_bus_id(pci_bus_id(node, i)).busId != bus) continue;
      *device = encode(i);
      return;
    }
    throw NvmlFailure{NVML_ERROR_NOT_FOUND};
  });
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t* info) {
  return nvml_call(
      [=] { nvml_out(info) = parse_bus_id(pci_bus_id(driver_instance().node, decode(device))); });
}

nvmlReturn_t nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t device, unsigned int* generation) {
  return nvml_call([=] { nvml_out(generation) = known(gpu_of(device).pcie_generation); });
}

nvmlReturn_t nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t device, unsigned int* width) {
  return nvml_call([=] { nvml_out(width) = known(gpu_of(device).pcie_width); });
}

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link,
                                      nvmlEnableState_t* is_active) {
  return nvml_call([=] {
    nvlink(device, link);
    nvml_out(is_active) = NVML_FEATURE_ENABLED;
  });
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link,
                                                 nvmlPciInfo_t* info) {
  return nvml_call([=] { nvml_out(info) = parse_bus_id(nvlink(device, link).bus_id); });
}

nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned int link,
                                                 nvmlIntNvLinkDeviceType_t* type) {
  return nvml_call([=] { nvml_out(type) = nvlink(device, link).type; });
}

nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned int link,
                                        unsigned int* version) {
  return nvml_call([=] {
    nvlink(device, link);
    nvml_out(version) = device_traits(gpu_of(device).name).nvlink_version;
  });
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t* values) {
  return nvml_call([=] {
    const int index = decode(device);
    require_nvml(count > 0 && values != nullptr, NVML_ERROR_INVALID_ARGUMENT);
    // Each field has a result of its own.
    for (nvmlFieldValue_t& value : std::span(values, static_cast<std::size_t>(count))) {
      value.nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
      if (value.fieldId != NVML_FI_DEV_NVLINK_LINK_COUNT) continue;
      value.nvmlReturn = NVML_SUCCESS;
      value.valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
      value.value.uiVal = static_cast<unsigned>(nvlinks(driver_instance().node, index).size());
    }
  });
}

// A node of its own, in no fabric of several.
nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfoV_t* info) {
  return nvml_call([=] {
    decode(device);
    nvml_out(info);
    throw NvmlFailure{NVML_ERROR_NOT_SUPPORTED};
  });
}

nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, nvmlComputeMode_t* mode) {
  return nvml_call([=] {
    decode(device);
    nvmlComputeMode_t& result = nvml_out(mode);
    switch (driver_instance().mode.compute) {
      case Mode::Compute::standard: result = NVML_COMPUTEMODE_DEFAULT; break;
      case Mode::Compute::exclusive_process: result = NVML_COMPUTEMODE_EXCLUSIVE_PROCESS; break;
      case Mode::Compute::prohibited: result = NVML_COMPUTEMODE_PROHIBITED; break;
    }
  });
}

/// Other processes' contexts are not told.
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t, unsigned int*,
                                                     nvmlProcessInfo_t*) {
  return NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t* info) {
  return nvml_call([=] {
    const int index = decode(device);
    nvmlMemory_t& result = nvml_out(info);
    Driver& driver = driver_instance();
    const std::lock_guard lock(driver.mutex);
    result.total = gpu_of(device).memory_bytes;
    result.free = driver.memory().free_bytes(index);
    result.used = result.total - result.free;
  });
}
