// Execution that has stopped, and goes on when a switch_to() names it: a stack pointer, with what
// a function call preserves on the stack. No call of the system, unlike swapcontext: a kernel's
// threads switch millions of times. Sanitizers are not told here, but by the caller of a switch.
#pragma once

#include <cstddef>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace polypath::simt {

class Continuation {
 public:
  /// Keeps a switch away from the stack of the caller.
  Continuation() = default;
  /// On a stack of its own, which it does not own: the first switch to it calls `entry(argument)`,
  /// which must never return.
  Continuation(void* stack, std::size_t bytes, void (*entry)(void*), void* argument) noexcept;

  /// Goes on in `to`, where that stopped last. Returns when a switch goes to `from`.
  static void switch_to(Continuation& from, Continuation& to) noexcept;

 private:
#if defined(__x86_64__)
  void* stack_pointer_ = nullptr;
#else
  ucontext_t context_{};
#endif
};

}  // namespace polypath::simt
