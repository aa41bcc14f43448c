#include "topology/numa.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <fstream>

#include "base/units.hpp"

namespace polypath {
namespace {

/// "node12" -> 12.
std::optional<int> domain_number(const std::string& folder) {
  constexpr std::string_view kPrefix = "node";
  if (!folder.starts_with(kPrefix)) return std::nullopt;
  int number = 0;
  const char* const end = folder.data() + folder.size();
  const auto [rest, problem] = std::from_chars(folder.data() + kPrefix.size(), end, number);
  if (problem != std::errc{} || rest != end) return std::nullopt;
  return number;
}

/// "Node 0 MemTotal:  1056 kB" -> bytes; 0 when there is no such line.
std::uint64_t memory_total(const std::filesystem::path& meminfo) {
  std::ifstream file(meminfo);
  std::string word;
  while (file >> word) {
    std::uint64_t kib = 0;
    if (word == "MemTotal:" && file >> kib) return kib * kKiB;
  }
  return 0;
}

bool has_cpus(const std::filesystem::path& cpulist) {
  std::ifstream file(cpulist);
  std::string cpus;
  return static_cast<bool>(file >> cpus);
}

}  // namespace

std::vector<HostMemory> numa_domains(const std::filesystem::path& sys) {
  std::vector<HostMemory> domains;
  std::error_code ignored;
  for (const auto& entry :
       std::filesystem::directory_iterator(sys / "devices/system/node", ignored)) {
    const std::optional<int> number = domain_number(entry.path().filename().string());
    if (!number || !has_cpus(entry.path() / "cpulist")) continue;
    const std::uint64_t bytes = memory_total(entry.path() / "meminfo");
    if (bytes > 0) domains.push_back({*number, bytes});
  }
  std::sort(domains.begin(), domains.end(),
            [](const HostMemory& a, const HostMemory& b) { return a.numa < b.numa; });
  return domains;
}

std::optional<int> pci_numa_domain(const std::string& pci, const std::filesystem::path& sys) {
  std::ifstream file(sys / "bus/pci/devices" / pci / "numa_node");
  int number = -1;
  if (!(file >> number) || number < 0) return std::nullopt;
  return number;
}

}  // namespace polypath
