#include "topology/discover.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <set>
#include <vector>

#include "base/error.hpp"
#include "driver/check.hpp"
#include "topology/default_graph.hpp"
#include "topology/numa.hpp"

namespace polypath {
namespace {

/// Default costs of a staged route until they are measured; from 4 x H200 (docs/cuda-notes.md).
constexpr double kStagedFixedUs = 36;
constexpr double kStagedGapUs = 4.2;

constexpr int kTextSize = 256;

CUdevice get_device(const CudaDriver& driver, int ordinal) {
  CUdevice device = 0;
  POLYPATH_CHECK(driver, device_get(&device, ordinal));
  return device;
}

std::string get_name(const CudaDriver& driver, CUdevice device) {
  std::array<char, kTextSize> text{};
  POLYPATH_CHECK(driver, device_get_name(text.data(), kTextSize, device));
  return text.data();
}

/// In the form of pci_name(): the driver writes capitals.
std::string get_pci(const CudaDriver& driver, CUdevice device) {
  std::array<char, kTextSize> text{};
  POLYPATH_CHECK(driver, device_get_pci_bus_id(text.data(), kTextSize, device));
  std::string pci = text.data();
  std::transform(pci.begin(), pci.end(), pci.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return pci;
}

/// "GPU-01234567-89ab-..." as nvidia-smi writes it; empty when the driver does not tell.
std::string get_uuid(const CudaDriver& driver, CUdevice device) {
  CUuuid uuid{};
  if (driver.device_get_uuid == nullptr || driver.device_get_uuid(&uuid, device) != CUDA_SUCCESS)
    return {};
  constexpr std::array<std::size_t, 4> kDashBefore{4, 6, 8, 10};
  std::string text = "GPU-";
  for (std::size_t i = 0; i < sizeof uuid.bytes; ++i) {
    if (std::find(kDashBefore.begin(), kDashBefore.end(), i) != kDashBefore.end()) text += '-';
    text += fmt::format("{:02x}", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return text;
}

/// An attribute that this driver may not know: `fallback` then.
int get_attribute(const CudaDriver& driver, CUdevice device, CUdevice_attribute attribute,
                  int fallback) {
  int value = fallback;
  return driver.device_get_attribute(&value, attribute, device) == CUDA_SUCCESS ? value : fallback;
}

/// The driver's word first, then the operating system's; the first domain when neither tells.
int get_numa(const CudaDriver& driver, CUdevice device, const std::string& pci,
             const std::vector<HostMemory>& domains) {
  const int numa_id = get_attribute(driver, device, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, -1);
  if (numa_id >= 0) return numa_id;
  return pci_numa_domain(pci).value_or(domains.empty() ? 0 : domains.front().numa);
}

ObservedGpu observe_gpu(const CudaDriver& driver, int ordinal,
                        const std::vector<HostMemory>& domains) {
  const CUdevice device = get_device(driver, ordinal);
  ObservedGpu seen;
  seen.gpu.name = get_name(driver, device);
  seen.gpu.uuid = get_uuid(driver, device);
  seen.gpu.pci = get_pci(driver, device);
  seen.gpu.numa = get_numa(driver, device, seen.gpu.pci, domains);
  seen.compute_capability =
      10 * get_attribute(driver, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0) +
      get_attribute(driver, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0);
  std::size_t memory = 0;
  POLYPATH_CHECK(driver, device_total_mem(&memory, device));
  seen.gpu.memory_bytes = memory;
  seen.coherent_with_cpu =
      get_attribute(driver, device,
                    CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES, 0) != 0;
  return seen;
}

std::vector<bool> observe_peer_access(const CudaDriver& driver, int ordinal, int count) {
  std::vector<bool> peers;
  const CUdevice device = get_device(driver, ordinal);
  for (int other = 0; other < count; ++other) {
    int allowed = 0;
    if (other != ordinal)
      POLYPATH_CHECK(driver, device_can_access_peer(&allowed, device, get_device(driver, other)));
    peers.push_back(allowed != 0);
  }
  return peers;
}

/// NVML's part of what is known of a GPU; the two libraries order devices differently, so it is
/// found by its bus id.
void observe_by_nvml(const Nvml& nvml, const std::set<std::string>& gpus, ObservedGpu& seen) {
  nvmlDevice_t device{};
  if (nvml.device_by_pci == nullptr ||
      nvml.device_by_pci(seen.gpu.pci.c_str(), &device) != NVML_SUCCESS)
    return;
  unsigned value = 0;
  if (nvml.max_pcie_generation != nullptr &&
      nvml.max_pcie_generation(device, &value) == NVML_SUCCESS)
    seen.gpu.pcie_generation = static_cast<int>(value);
  if (nvml.max_pcie_width != nullptr && nvml.max_pcie_width(device, &value) == NVML_SUCCESS)
    seen.gpu.pcie_width = static_cast<int>(value);
  seen.nvlinks = view_nvlinks(nvml, device, gpus);
}

std::string describe(const std::vector<Gpu>& gpus) {
  const bool equal = std::all_of(gpus.begin(), gpus.end(),
                                 [&](const Gpu& gpu) { return gpu.name == gpus.front().name; });
  return fmt::format("{} x {}", gpus.size(), equal ? gpus.front().name : "GPU");
}

}  // namespace

Node discover_node(const CudaDriver& driver, const Nvml* nvml) {
  int count = 0;
  POLYPATH_CHECK(driver, device_get_count(&count));
  if (count == 0) throw NoDevice("the CUDA driver shows no GPU");

  const std::vector<HostMemory> domains = numa_domains();
  std::vector<ObservedGpu> gpus;
  std::set<std::string> bus_ids;
  for (int i = 0; i < count; ++i) {
    gpus.push_back(observe_gpu(driver, i, domains));
    gpus.back().peer_access = observe_peer_access(driver, i, count);
    bus_ids.insert(gpus.back().gpu.pci);
  }
  if (nvml != nullptr)
    for (ObservedGpu& gpu : gpus) observe_by_nvml(*nvml, bus_ids, gpu);

  Node node = make_default_graph(gpus, domains);
  node.costs.staged_fixed_us = kStagedFixedUs;
  node.costs.staged_gap_us = kStagedGapUs;
  node.name = describe(node.gpus);
  node.title = node.name;
  node.source = "links from the driver and NVML, default capacities";
  validate(node);
  return node;
}

}  // namespace polypath
