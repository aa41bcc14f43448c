// The NVLinks of one GPU, as NVML shows them.
#pragma once

#include <map>
#include <set>
#include <string>

#include "driver/nvml.hpp"

namespace polypath {

struct NvlinkView {
  std::map<std::string, int> to_gpu;  ///< links by the PCI bus id of the GPU at the other end
  int to_switch = 0;
  int to_cpu = 0;
};

/// `gpus` are the bus ids of all GPUs. Links that are active but whose other end NVML does not tell
/// count as links to a switch, unless its bus id is a GPU's: so it is in virtual machines that hold
/// GPUs of an NVSwitch. Calls that this NVML lacks, or that fail, leave their part empty.
NvlinkView view_nvlinks(const Nvml& nvml, nvmlDevice_t device, const std::set<std::string>& gpus);

/// Bus ids as this project writes them: "0000:41:00.0", lower case, four digits of domain.
std::string pci_name(unsigned domain, unsigned bus, unsigned device);

}  // namespace polypath
