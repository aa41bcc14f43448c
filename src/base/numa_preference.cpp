#include "base/numa_preference.hpp"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>

namespace polypath {
namespace {

constexpr std::size_t kBits = 8 * sizeof(unsigned long);

}  // namespace

// The system calls themselves, because libnuma is not everywhere. The kernel reads one bit less than
// it is told.
NumaPreference::NumaPreference(int domain) noexcept {
  if (domain < 0 || domain >= kDomains) return;
  if (syscall(SYS_get_mempolicy, &old_mode_, old_domains_.data(), kDomains, nullptr, 0) != 0)
    return;
  Mask wanted{};
  const auto bit = static_cast<std::size_t>(domain);
  wanted[bit / kBits] = 1UL << (bit % kBits);
  set_ = syscall(SYS_set_mempolicy, MPOL_PREFERRED, wanted.data(), kDomains + 1) == 0;
}

NumaPreference::~NumaPreference() {
  if (set_) syscall(SYS_set_mempolicy, old_mode_, old_domains_.data(), kDomains + 1);
}

}  // namespace polypath
