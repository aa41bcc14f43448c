#include "simt/fiber.hpp"

#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace polypath::simt {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::size_t kStackBytes = std::size_t{256} << 10;
#else
constexpr std::size_t kStackBytes = std::size_t{64} << 10;
#endif

constexpr std::size_t kStacksAtOnce = 256;
// From one to the next: were it a power of two, what all of them use at once would lie in the same
// few sets of the processor's caches.
constexpr std::size_t kStride = kStackBytes + 4096 + 256;
constexpr std::uint64_t kCanary = 0x5AFE57ACC0FFEE00;

// Guard pages would take a mapping each, of which a process may have 65530: a value has to do.
struct Pool {
  std::mutex mutex;
  std::vector<void*> free;
};

Pool& pool() {
  static Pool* const stacks = new Pool;  // outlives every fiber
  return *stacks;
}

}  // namespace

Stack::Stack() {
  Pool& stacks = pool();
  const std::lock_guard lock(stacks.mutex);
  if (stacks.free.empty()) {
    void* const region = ::mmap(nullptr, kStacksAtOnce * kStride, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (region == MAP_FAILED) throw std::bad_alloc();
    stacks.free.reserve(stacks.free.capacity() + kStacksAtOnce);
    for (std::size_t i = kStacksAtOnce; i-- > 0;)
      stacks.free.push_back(static_cast<std::byte*>(region) + i * kStride);
  }
  begin_ = stacks.free.back();
  stacks.free.pop_back();
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(begin_, kStackBytes);  // as the last fiber left it
#endif
  *static_cast<std::uint64_t*>(begin_) = kCanary;
}

Stack::~Stack() {
  Pool& stacks = pool();
  const std::lock_guard lock(stacks.mutex);
  stacks.free.push_back(begin_);
}

std::size_t Stack::bytes() noexcept { return kStackBytes; }

bool Stack::is_intact() const noexcept {
  return *static_cast<const std::uint64_t*>(begin_) == kCanary;
}

Fiber::Fiber(std::function<void()> function)
    : function_(std::move(function)),
      own_(
          stack_.begin(), Stack::bytes(), [](void* self) { static_cast<Fiber*>(self)->run(); },
          this) {
#if defined(__SANITIZE_THREAD__)
  sanitizer_own_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
#if defined(__SANITIZE_THREAD__)
  __tsan_destroy_fiber(sanitizer_own_);
#endif
}

void Fiber::resume() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&sanitizer_caller_, stack_.begin(), Stack::bytes());
#endif
#if defined(__SANITIZE_THREAD__)
  sanitizer_caller_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(sanitizer_own_, 0);
#endif
  Continuation::switch_to(caller_, own_);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(sanitizer_caller_, nullptr, nullptr);
#endif
  if (stack_.is_intact()) return;
  std::fprintf(stderr, "polypath_simt: a thread of a kernel ran over its stack of %zu KiB\n",
               Stack::bytes() >> 10);
  std::abort();
}

void Fiber::yield() {
  leave();
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(sanitizer_own_, &caller_stack_, &caller_stack_bytes_);
#endif
}

void Fiber::leave() {
#if defined(__SANITIZE_ADDRESS__)
  // A fiber that has ended gives its fake stack up.
  __sanitizer_start_switch_fiber(has_ended_ ? nullptr : &sanitizer_own_, caller_stack_,
                                 caller_stack_bytes_);
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(sanitizer_caller_, 0);
#endif
  Continuation::switch_to(own_, caller_);
}

void Fiber::run() noexcept {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &caller_stack_, &caller_stack_bytes_);
#endif
  try {
    function_();
  } catch (...) {
    error_ = std::current_exception();
  }
  has_ended_ = true;
  leave();
  std::abort();  // an ended fiber is not resumed
}

}  // namespace polypath::simt
