#include "nccl/trampolines.hpp"

#include "nccl/real_library.hpp"
#include "nccl/strict_mode.hpp"

namespace polypath::nccl {
namespace {

int no_function() noexcept { return kInvalidUsage; }
const char* no_text() noexcept { return "NCCL's library has no such function, or there is none"; }

}  // namespace
}  // namespace polypath::nccl

extern "C" {

[[gnu::visibility("hidden")]] void* polypath_nccl_find(polypath::nccl::Slot* slot,
                                                       const void* caller) noexcept;
}

/// Called by the first call of each function; kept when the library has it.
void* polypath_nccl_find(polypath::nccl::Slot* slot, const void* caller) noexcept {
  using namespace polypath::nccl;
  const RealNccl* const real = real_library(caller, true);
  void* const found = real != nullptr ? real->find(slot->name) : nullptr;
  if (slot->kind == kSums && found != nullptr)
    report_unguaranteed(slot->name, "it is not taken over");
  if (found == nullptr)
    return slot->kind == kText ? reinterpret_cast<void*>(&no_text)
                               : reinterpret_cast<void*>(&no_function);
  __atomic_store_n(&slot->target, found, __ATOMIC_RELEASE);
  return found;
}
