#include "host_placement.hpp"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <optional>

namespace polypath::sim {
namespace {

constexpr unsigned long kMostDomains = 1024;  // as many as the kernel's mask may have

/// The operating system's number of the one domain that the thread's policy names.
std::optional<int> policy_domain() {
  int mode = MPOL_DEFAULT;
  std::array<unsigned long, kMostDomains / 64> mask{};
  if (::syscall(SYS_get_mempolicy, &mode, mask.data(), kMostDomains, nullptr, 0) != 0)
    return std::nullopt;
  if (mode != MPOL_PREFERRED && mode != MPOL_BIND) return std::nullopt;
  std::optional<int> domain;
  for (std::size_t i = 0; i < mask.size(); ++i) {
    if (mask[i] == 0) continue;
    if (domain || !std::has_single_bit(mask[i])) return std::nullopt;
    domain = static_cast<int>(i) * 64 + std::countr_zero(mask[i]);
  }
  return domain;
}

}  // namespace

MemoryId place_host_memory(const Node& node, int device) {
  if (const std::optional<int> domain = policy_domain())
    for (std::size_t i = 0; i < node.hosts.size(); ++i)
      if (node.hosts[i].numa == *domain) return MemoryId::host(static_cast<int>(i));
  return MemoryId::host(node.gpus[static_cast<std::size_t>(device)].numa);
}

}  // namespace polypath::sim
