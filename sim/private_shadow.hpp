// A shadow that nobody else sees; used under the driver's lock.
#pragma once

#include <vector>

#include "shadow.hpp"

namespace polypath::sim {

class PrivateShadow : public Shadow {
 public:
  /// Throws std::bad_alloc when the address space is used up.
  explicit PrivateShadow(std::size_t bytes);
  ~PrivateShadow() override;

 protected:
  bool is_touched(std::size_t granule) override { return touched_[granule]; }
  void touch(std::size_t granule, bool is_overwritten) override;

 private:
  std::vector<bool> touched_;  // one a granule
};

}  // namespace polypath::sim
