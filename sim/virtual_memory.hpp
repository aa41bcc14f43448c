// Host memory that the CPU and the devices use by different addresses: of mappings (cuMemMap).
#pragma once

#include <cstdint>

#include "shadow.hpp"

namespace polypath::sim {

/// Zero at first, as the system gives it; the CPU may write it at any time.
class HostShadow : public Shadow {
 public:
  /// Throws std::bad_alloc when there is no file or address space left.
  explicit HostShadow(std::size_t bytes);
  ~HostShadow() override;

  /// Shows the bytes at this address, to the program's reads or writes or neither; bits of PROT_*.
  void show(std::uintptr_t address, int access) const;

 protected:
  bool is_touched(std::size_t) override { return true; }
  void touch(std::size_t, bool) override {}

 private:
  int file_;
};

}  // namespace polypath::sim
