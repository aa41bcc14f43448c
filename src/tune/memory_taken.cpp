#include "tune/memory_taken.hpp"

#include <utility>

#include "driver/check.hpp"
#include "tune/resources.hpp"

namespace polypath {

MemoryTaken::MemoryTaken(const CudaDriver& driver, std::vector<CUcontext> contexts)
    : driver_(driver), contexts_(std::move(contexts)) {
  for (const CUcontext context : contexts_) before_.push_back(free_on(context));
}

std::size_t MemoryTaken::free_on(CUcontext context) const {
  const CurrentContext current(driver_, context);
  std::size_t free = 0;
  std::size_t total = 0;
  POLYPATH_CHECK(driver_, mem_get_info(&free, &total));
  return free;
}

std::optional<std::uint64_t> MemoryTaken::bytes() const {
  std::uint64_t taken = 0;
  for (std::size_t i = 0; i < contexts_.size(); ++i) {
    const std::size_t free = free_on(contexts_[i]);
    if (free > before_[i]) return std::nullopt;
    taken += before_[i] - free;
  }
  return taken;
}

}  // namespace polypath
