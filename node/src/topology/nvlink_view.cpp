#include "topology/nvlink_view.hpp"

#include <fmt/format.h>

namespace polypath {
namespace {

bool is_active(const Nvml& nvml, nvmlDevice_t device, unsigned link) {
  nvmlEnableState_t state = NVML_FEATURE_DISABLED;
  return nvml.nvlink_state(device, link, &state) == NVML_SUCCESS && state == NVML_FEATURE_ENABLED;
}

nvmlIntNvLinkDeviceType_t remote_type(const Nvml& nvml, nvmlDevice_t device, unsigned link) {
  nvmlIntNvLinkDeviceType_t type = NVML_NVLINK_DEVICE_TYPE_UNKNOWN;
  if (nvml.nvlink_remote_type == nullptr ||
      nvml.nvlink_remote_type(device, link, &type) != NVML_SUCCESS)
    return NVML_NVLINK_DEVICE_TYPE_UNKNOWN;
  return type;
}

/// Bus id of the other end; empty when NVML does not tell.
std::string remote_pci(const Nvml& nvml, nvmlDevice_t device, unsigned link) {
  nvmlPciInfo_t pci{};
  if (nvml.nvlink_remote_pci == nullptr ||
      nvml.nvlink_remote_pci(device, link, &pci) != NVML_SUCCESS)
    return {};
  return pci_name(pci.domain, pci.bus, pci.device);
}

}  // namespace

NvlinkView view_nvlinks(const Nvml& nvml, nvmlDevice_t device, const std::set<std::string>& gpus) {
  NvlinkView view;
  if (nvml.nvlink_state == nullptr) return view;
  for (unsigned link = 0; link < NVML_NVLINK_MAX_LINKS; ++link) {
    if (!is_active(nvml, device, link)) continue;
    const std::string remote = remote_pci(nvml, device, link);
    switch (remote_type(nvml, device, link)) {
      case NVML_NVLINK_DEVICE_TYPE_GPU: ++view.to_gpu[remote]; break;
      case NVML_NVLINK_DEVICE_TYPE_IBMNPU: ++view.to_cpu; break;
      case NVML_NVLINK_DEVICE_TYPE_SWITCH: ++view.to_switch; break;
      case NVML_NVLINK_DEVICE_TYPE_UNKNOWN:
        ++(gpus.contains(remote) ? view.to_gpu[remote] : view.to_switch);
        break;
    }
  }
  return view;
}

std::string pci_name(unsigned domain, unsigned bus, unsigned device) {
  return fmt::format("{:04x}:{:02x}:{:02x}.0", domain, bus, device);
}

}  // namespace polypath
