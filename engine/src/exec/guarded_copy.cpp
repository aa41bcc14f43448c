#include "exec/guarded_copy.hpp"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <new>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace polypath {
namespace {

constexpr std::array kFaults{SIGSEGV, SIGBUS};
/// Copies at once, in all threads of the process; one that finds no place waits for one.
constexpr std::size_t kCopyPlaces = 256;

/// A copy under way. The handler looks for its own thread here and not in thread-local memory:
/// that of a library opened later is allocated at its first use, which a handler may not do.
struct CopyPlace {
  std::atomic<bool> is_taken{false};
  std::atomic<pthread_t> thread{};
  std::atomic<sigjmp_buf*> escape{nullptr};
};

constinit std::array<CopyPlace, kCopyPlaces> copy_places{};

/// What a program has set. Never freed, since a handler may read it: one for each different action.
struct ProgramAction {
  struct sigaction action;
  const ProgramAction* before;
};

/// What the program has set last, by signal as in kFaults.
constinit std::array<std::atomic<const ProgramAction*>, kFaults.size()> program_actions{};
/// All that it has set so far.
constinit std::array<const ProgramAction*, kFaults.size()> known_actions{};
constinit std::atomic<pid_t> fault_process{0};
constinit std::mutex fault_mutex;  // for fault_guards, and for setting handlers
constinit int fault_guards = 0;    // FaultGuards that exist

std::size_t fault_index(int signal) noexcept { return signal == SIGBUS ? 1 : 0; }

void call_program(int signal, siginfo_t* info, void* context) noexcept {
  const ProgramAction* const known =
      program_actions[fault_index(signal)].load(std::memory_order_acquire);
  struct sigaction program{};
  if (known != nullptr) program = known->action;
  const bool is_sent = info == nullptr || info->si_code <= 0;  // by kill() and its kin
  if ((program.sa_flags & SA_SIGINFO) == 0) {
    if (program.sa_handler == SIG_IGN && is_sent) return;
    if (program.sa_handler == SIG_DFL || program.sa_handler == SIG_IGN) {
      // The fault happens once more when this returns, and ends the process as it would have.
      struct sigaction standard{};
      standard.sa_handler = SIG_DFL;
      sigaction(signal, &standard, nullptr);
      if (is_sent) raise(signal);
      return;
    }
  }
  if ((program.sa_flags & static_cast<int>(SA_RESETHAND)) != 0) {
    struct sigaction standard{};
    standard.sa_handler = SIG_DFL;
    sigaction(signal, &standard, nullptr);
  }
  if ((program.sa_flags & SA_SIGINFO) != 0)
    program.sa_sigaction(signal, info, context);
  else
    program.sa_handler(signal);
}

void handle_fault(int signal, siginfo_t* info, void* context) {
  if (getpid() == fault_process.load(std::memory_order_relaxed)) {
    const pthread_t self = pthread_self();
    for (CopyPlace& place : copy_places) {
      sigjmp_buf* const escape = place.escape.load(std::memory_order_acquire);
      if (escape != nullptr && pthread_equal(place.thread.load(std::memory_order_relaxed), self))
        siglongjmp(*escape, 1);
    }
  }
  call_program(signal, info, context);
}

bool is_ours(const struct sigaction& action) noexcept {
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == &handle_fault;
}

/// The C library returns masks and flags with parts of its own.
bool is_same(const struct sigaction& a, const struct sigaction& b) noexcept {
  constexpr int kFlags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER | SA_RESTART | SA_NOCLDSTOP |
                         SA_NOCLDWAIT | static_cast<int>(SA_RESETHAND);
  if (((a.sa_flags ^ b.sa_flags) & kFlags) != 0 || a.sa_sigaction != b.sa_sigaction) return false;
  for (int signal = 1; signal < NSIG; ++signal)
    if (sigismember(&a.sa_mask, signal) != sigismember(&b.sa_mask, signal)) return false;
  return true;
}

/// Whether the handler is set for the signal.
bool set_handler(int signal) noexcept {
  struct sigaction now{};
  if (sigaction(signal, nullptr, &now) != 0) return false;
  if (is_ours(now)) return true;
  const ProgramAction*& known = known_actions[fault_index(signal)];
  const ProgramAction* program = known;
  while (program != nullptr && !is_same(program->action, now)) program = program->before;
  if (program == nullptr) {
    program = new (std::nothrow) ProgramAction{now, known};
    if (program == nullptr) return false;
    known = program;
  }
  program_actions[fault_index(signal)].store(program, std::memory_order_release);
  struct sigaction own = now;
  own.sa_sigaction = &handle_fault;
  // With what the program's own handler asks for; without one there is nothing to ask for.
  own.sa_flags = SA_SIGINFO | (now.sa_flags & (SA_ONSTACK | SA_NODEFER | SA_RESTART));
  return sigaction(signal, &own, nullptr) == 0;
}

void put_back_handler(int signal) noexcept {
  struct sigaction now{};
  const ProgramAction* const program = program_actions[fault_index(signal)].load();
  if (program != nullptr && sigaction(signal, nullptr, &now) == 0 && is_ours(now))
    sigaction(signal, &program->action, nullptr);
}

#if defined(__x86_64__)

constexpr std::size_t kCacheLine = 64;

/// Whole lines; `to` begins with one.
void stream_lines(std::byte* to, const std::byte* from, std::size_t lines) noexcept {
  for (; lines > 0; --lines, to += kCacheLine, from += kCacheLine) {
    const auto* const in = reinterpret_cast<const __m128i*>(from);
    auto* const out = reinterpret_cast<__m128i*>(to);
    const __m128i a = _mm_loadu_si128(in);
    const __m128i b = _mm_loadu_si128(in + 1);
    const __m128i c = _mm_loadu_si128(in + 2);
    const __m128i d = _mm_loadu_si128(in + 3);
    _mm_stream_si128(out, a);
    _mm_stream_si128(out + 1, b);
    _mm_stream_si128(out + 2, c);
    _mm_stream_si128(out + 3, d);
  }
}

__attribute__((target("avx"))) void stream_lines_avx(std::byte* to, const std::byte* from,
                                                     std::size_t lines) noexcept {
  for (; lines > 0; --lines, to += kCacheLine, from += kCacheLine) {
    const auto* const in = reinterpret_cast<const __m256i*>(from);
    auto* const out = reinterpret_cast<__m256i*>(to);
    const __m256i a = _mm256_loadu_si256(in);
    const __m256i b = _mm256_loadu_si256(in + 1);
    _mm256_stream_si256(out, a);
    _mm256_stream_si256(out + 1, b);
  }
}

void copy_streaming(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  static const bool has_avx = __builtin_cpu_supports("avx") != 0;
  const std::size_t head =
      (kCacheLine - std::bit_cast<std::uintptr_t>(to) % kCacheLine) % kCacheLine;
  if (bytes < head + kCacheLine) {
    std::memcpy(to, from, bytes);
    return;
  }
  std::memcpy(to, from, head);
  const std::size_t lines = (bytes - head) / kCacheLine;
  if (has_avx)
    stream_lines_avx(to + head, from + head, lines);
  else
    stream_lines(to + head, from + head, lines);
  // These stores are ordered with no others, not even with the release of a lock.
  _mm_sfence();
  const std::size_t done = head + lines * kCacheLine;
  std::memcpy(to + done, from + done, bytes - done);
}

#else

void copy_streaming(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  std::memcpy(to, from, bytes);
}

#endif

CopyPlace& take_copy_place() noexcept {
  for (;;)
    for (CopyPlace& place : copy_places)
      if (!place.is_taken.load(std::memory_order_relaxed) &&
          !place.is_taken.exchange(true, std::memory_order_acquire))
        return place;
}

}  // namespace

FaultGuard::FaultGuard() noexcept {
  const std::lock_guard lock(fault_mutex);
  ++fault_guards;
  fault_process.store(getpid(), std::memory_order_relaxed);
  for (const int signal : kFaults) set_handler(signal);
}

FaultGuard::~FaultGuard() {
  const std::lock_guard lock(fault_mutex);
  if (--fault_guards > 0) return;
  for (const int signal : kFaults) put_back_handler(signal);
}

bool copy_guarded(std::byte* to, const std::byte* from, std::size_t bytes, Stores stores) noexcept {
  CopyPlace& place = take_copy_place();
  sigjmp_buf escape;
  place.thread.store(pthread_self(), std::memory_order_relaxed);
  const bool is_whole = sigsetjmp(escape, 1) == 0;
  if (is_whole) {
    place.escape.store(&escape, std::memory_order_release);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (stores == Stores::streaming)
      copy_streaming(to, from, bytes);
    else
      std::memcpy(to, from, bytes);
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  place.escape.store(nullptr, std::memory_order_relaxed);
  place.is_taken.store(false, std::memory_order_release);
  return is_whole;
}

}  // namespace polypath
