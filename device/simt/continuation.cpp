#include "simt/continuation.hpp"

#include <cstdint>

#if defined(__x86_64__)

// By the System V ABI a call preserves rbx, rbp and r12 to r15, and the control words of the
// floating point units, which nothing here changes. What begins finds its entry in r13, its
// argument in r12, and a frame pointer of 0, where walks up the stack end.
asm(R"(
.text
.type polypath_simt_switch, @function
polypath_simt_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq (%rsi), %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size polypath_simt_switch, . - polypath_simt_switch

.type polypath_simt_begin, @function
polypath_simt_begin:
  movq %r12, %rdi
  call *%r13
  ud2
.size polypath_simt_begin, . - polypath_simt_begin
)");

extern "C" {
void polypath_simt_switch(void** from, void** to) noexcept;
void polypath_simt_begin() noexcept;
}

namespace polypath::simt {

Continuation::Continuation(void* stack, std::size_t bytes, void (*entry)(void*),
                           void* argument) noexcept {
  const std::uintptr_t end =
      (reinterpret_cast<std::uintptr_t>(stack) + bytes) & ~std::uintptr_t{15};
  void** word = reinterpret_cast<void**>(end);
  *--word = reinterpret_cast<void*>(&polypath_simt_begin);
  *--word = nullptr;  // rbp
  *--word = nullptr;  // rbx
  *--word = argument;
  *--word = reinterpret_cast<void*>(entry);
  *--word = nullptr;  // r14
  *--word = nullptr;  // r15
  stack_pointer_ = word;
}

void Continuation::switch_to(Continuation& from, Continuation& to) noexcept {
  polypath_simt_switch(&from.stack_pointer_, &to.stack_pointer_);
}

}  // namespace polypath::simt

#else

namespace polypath::simt {
namespace {

/// makecontext passes ints.
void begin(unsigned entry_high, unsigned entry_low, unsigned argument_high, unsigned argument_low) {
  const auto word = [](unsigned high, unsigned low) { return std::uintptr_t{high} << 32 | low; };
  reinterpret_cast<void (*)(void*)>(word(entry_high, entry_low))(
      reinterpret_cast<void*>(word(argument_high, argument_low)));
}

}  // namespace

Continuation::Continuation(void* stack, std::size_t bytes, void (*entry)(void*),
                           void* argument) noexcept {
  ::getcontext(&context_);
  context_.uc_stack.ss_sp = stack;
  context_.uc_stack.ss_size = bytes;
  context_.uc_link = nullptr;
  const auto high = [](auto* address) {
    return static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(address) >> 32);
  };
  const auto low = [](auto* address) {
    return static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(address));
  };
  ::makecontext(&context_, reinterpret_cast<void (*)()>(&begin), 4, high(entry), low(entry),
                high(argument), low(argument));
}

void Continuation::switch_to(Continuation& from, Continuation& to) noexcept {
  ::swapcontext(&from.context_, &to.context_);
}

}  // namespace polypath::simt

#endif
