// What Linux says about NUMA domains, under /sys.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "topology/node.hpp"

namespace polypath {

/// NUMA domains with both CPUs and memory, by number: domains that are a GPU's own memory (GH200)
/// or memory expanders hold no staging buffers. Empty when the system does not tell.
std::vector<HostMemory> numa_domains(const std::filesystem::path& sys = "/sys");

/// The NUMA domain of a PCI device ("0000:41:00.0"); nothing when the system does not tell.
std::optional<int> pci_numa_domain(const std::string& pci,
                                   const std::filesystem::path& sys = "/sys");

}  // namespace polypath
