#include "contexts.hpp"

#include <utility>

#include "failure.hpp"

namespace polypath::sim {

std::vector<CUcontext>& context_stack() noexcept {
  thread_local std::vector<CUcontext> stack;
  return stack;
}

Context& Contexts::current() const {
  const std::vector<CUcontext>& stack = context_stack();
  require(!stack.empty() && stack.back() != nullptr, CUDA_ERROR_INVALID_CONTEXT);
  Context& context = get(stack.back(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  context.require_no_fault();
  return context;
}

Context& Contexts::get_or_current(CUcontext handle) const {
  return handle == nullptr ? current() : get(handle, CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

Context& Contexts::add(std::unique_ptr<Context> context) {
  Context& added = *context;
  added.id = ++last_id_;
  added.handle = table_.add(std::move(context));
  return added;
}

}  // namespace polypath::sim
