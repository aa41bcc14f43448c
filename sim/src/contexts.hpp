// The contexts of the process, and which of them is current to a thread.
//
// Contexts owns all contexts, guarded by the driver's lock. How they are made and what ends with
// them is in context_lifecycle.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "cuda_api.hpp"
#include "handle_table.hpp"
#include "objects.hpp"

namespace polypath::sim {

/// The calling thread's stack of contexts; its back is the current one. Handles only: a context may
/// be destroyed while it is on one.
std::vector<CUcontext>& context_stack() noexcept;

class Contexts {
 public:
  /// The calling thread's current context. Failure INVALID_CONTEXT when there is none,
  /// CONTEXT_IS_DESTROYED when it was destroyed; the failure of its kernel, if one has failed.
  Context& current() const;
  /// The current one for null. Failure CONTEXT_IS_DESTROYED when it was destroyed.
  [[nodiscard]] Context& get_or_current(CUcontext handle) const;
  /// The context, or null when there is none.
  [[nodiscard]] Context* find(CUcontext handle) const noexcept { return table_.find(handle); }
  /// Throws Failure{code} when there is none.
  Context& get(CUcontext handle, CUresult code = CUDA_ERROR_INVALID_HANDLE) const {
    return table_.get(handle, code);
  }
  /// Fills in its handle and its id, which is never given out twice.
  Context& add(std::unique_ptr<Context> context);
  void remove(CUcontext handle) { table_.remove(handle); }
  [[nodiscard]] std::size_t live() const noexcept { return table_.live(); }

 private:
  HandleTable<CUcontext, Context, 0x51C0> table_;
  std::uint64_t last_id_ = 0;
};

}  // namespace polypath::sim
