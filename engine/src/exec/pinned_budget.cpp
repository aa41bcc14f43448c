#include "exec/pinned_budget.hpp"

#include <cuda.h>
#include <fmt/format.h>

#include "base/error.hpp"

namespace polypath {

std::atomic<std::uint64_t> PinnedBudget::used_{0};

PinnedBudget::Share PinnedBudget::take(std::uint64_t bytes) {
  std::uint64_t before = used_;
  do {
    if (bytes > limit_ || before > limit_ - bytes)
      throw DriverError(
          fmt::format("{} bytes of pinned memory do not fit the limit: {} of {} are in use; set "
                      "POLYPATH_PINNED_LIMIT",
                      bytes, before, limit_),
          static_cast<int>(CUDA_ERROR_OUT_OF_MEMORY));
  } while (!used_.compare_exchange_weak(before, before + bytes));
  return Share(bytes);
}

}  // namespace polypath
