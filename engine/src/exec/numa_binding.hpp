// The calling thread's memory policy, set to one NUMA domain for a scope, so that pinned host
// memory allocated meanwhile lies there. Where the kernel refuses (a container, a machine with one
// domain), memory lies wherever the thread runs: slower at worst.
#pragma once

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace polypath {

class NumaBinding {
 public:
  explicit NumaBinding(int domain) {
    if (domain < 0 || domain >= kDomains) return;
    if (syscall(SYS_get_mempolicy, &saved_mode_, &saved_mask_, kDomains, nullptr, 0) != 0) return;
    const unsigned long mask = 1UL << static_cast<unsigned>(domain);
    set_ = syscall(SYS_set_mempolicy, MPOL_PREFERRED, &mask, kDomains) == 0;
  }
  ~NumaBinding() {
    if (set_) syscall(SYS_set_mempolicy, saved_mode_, &saved_mask_, kDomains);
  }
  NumaBinding(const NumaBinding&) = delete;
  NumaBinding& operator=(const NumaBinding&) = delete;

 private:
  static constexpr int kDomains = 64;
  int saved_mode_ = 0;
  unsigned long saved_mask_ = 0;
  bool set_ = false;
};

}  // namespace polypath
