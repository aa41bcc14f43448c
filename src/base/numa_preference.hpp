// Where new host memory lies.
#pragma once

#include <array>

namespace polypath {

/// While it lives, memory that this thread brings into being comes from one NUMA domain, as long as
/// that has room. Does nothing where the system has no such domain or does not allow it. Scopes may be
/// nested.
class NumaPreference {
 public:
  /// `domain`: the operating system's number, HostMemory::numa.
  explicit NumaPreference(int domain) noexcept;
  ~NumaPreference();
  NumaPreference(const NumaPreference&) = delete;
  NumaPreference& operator=(const NumaPreference&) = delete;

  static constexpr int kDomains = 4096;

 private:
  using Mask = std::array<unsigned long, kDomains / (8 * sizeof(unsigned long))>;

  bool set_ = false;
  int old_mode_ = 0;
  Mask old_domains_{};
};

}  // namespace polypath
