// A thread of a kernel on the host: a function with a stack of its own, which gives its turn back
// wherever it has to wait. The sanitizers are told of every switch.
#pragma once

#include <cstddef>
#include <exception>
#include <functional>

#include "simt/continuation.hpp"

namespace polypath::simt {

/// Memory for a stack; kept for the next fiber when this one ends.
class Stack {
 public:
  /// Throws std::bad_alloc when there is no address space left.
  Stack();
  ~Stack();
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;

  [[nodiscard]] void* begin() const noexcept { return begin_; }
  [[nodiscard]] static std::size_t bytes() noexcept;
  /// False when something has been written past its end.
  [[nodiscard]] bool is_intact() const noexcept;

 private:
  void* begin_;
};

/// Not tied to a thread of the system: turns may be given by one after another.
class Fiber {
 public:
  explicit Fiber(std::function<void()> function);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Runs it until it gives its turn back or ends. A fiber that ran over its stack ends the
  /// process.
  void resume();
  /// Called by the fiber itself: returns to the caller that resumed it.
  void yield();
  [[nodiscard]] bool has_ended() const noexcept { return has_ended_; }
  /// What its function threw, once it has ended.
  [[nodiscard]] std::exception_ptr error() const noexcept { return error_; }

 private:
  void run() noexcept;
  void leave();

  std::function<void()> function_;
  Stack stack_;
  bool has_ended_ = false;
  std::exception_ptr error_;

  Continuation own_;
  Continuation caller_;
  void* sanitizer_own_ = nullptr;     // AddressSanitizer's fake stack, or ThreadSanitizer's fiber
  void* sanitizer_caller_ = nullptr;  // the same of the caller
  const void* caller_stack_ = nullptr;
  std::size_t caller_stack_bytes_ = 0;
};

}  // namespace polypath::simt
