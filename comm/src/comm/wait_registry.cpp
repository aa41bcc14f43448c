#include "comm/wait_registry.hpp"

#include <utility>

namespace polypath {

std::uint32_t WaitRegistry::add(std::uint32_t count, Describe describe) {
  const std::lock_guard lock(mutex_);
  const std::uint32_t first = next_;
  next_ += count;
  all_.emplace(first, Numbers{count, std::move(describe)});
  return first;
}

void WaitRegistry::remove(std::uint32_t first) {
  const std::lock_guard lock(mutex_);
  all_.erase(first);
}

std::string WaitRegistry::describe(const wait_error& status) const {
  const bool is_mismatch = status.reason == wait_error::mismatch;
  if (!is_mismatch && (status.waited_for_rank != wait_error::kNobody || status.bytes != 0))
    return {};
  const std::uint64_t number = is_mismatch ? status.expected >> 32 : status.offset;
  Describe describe;
  std::uint64_t index = 0;
  {
    const std::lock_guard lock(mutex_);
    auto at = all_.upper_bound(static_cast<std::uint32_t>(number));
    if (at == all_.begin()) return {};
    --at;
    index = number - at->first;
    if (index >= at->second.count) return {};
    describe = at->second.describe;
  }
  return describe(status, static_cast<std::uint32_t>(index));
}

}  // namespace polypath
