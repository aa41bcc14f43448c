#include "driver/fault_injection.hpp"

#include <array>
#include <atomic>
#include <cstddef>

#include "base/error.hpp"

namespace polypath {
namespace {

enum Symbol : std::size_t {
#define POLYPATH_CUDA(member, name, type, need) symbol_##member,
#include "driver/cuda_symbols.def"
  symbol_count
};

constexpr std::array<std::string_view, symbol_count> kNames = {
#define POLYPATH_CUDA(member, name, type, need) name,
#include "driver/cuda_symbols.def"
};

constexpr bool never_fails(Symbol symbol) noexcept {
  return symbol == symbol_get_error_name || symbol == symbol_get_error_string;
}

/// Counts calls; the call with the number `fail_at` must fail (0: none, numbers start at 1).
struct Counter {
  std::atomic<std::uint64_t> calls{0};
  std::atomic<std::uint64_t> fail_at{0};

  bool next_fails() noexcept {
    const std::uint64_t number = calls.fetch_add(1, std::memory_order_relaxed) + 1;
    // Acquire pairs with arm(): a thread that sees the number sees the result to return.
    return number == fail_at.load(std::memory_order_acquire);
  }
  void arm(std::uint64_t nth) noexcept {
    fail_at.store(calls.load(std::memory_order_relaxed) + nth, std::memory_order_release);
  }
  void disarm() noexcept { fail_at.store(0, std::memory_order_relaxed); }
};

struct State {
  std::atomic<bool> in_use{false};
  CudaDriver wrapped;
  Counter all;
  std::array<Counter, symbol_count> by_symbol;
  std::atomic<CUresult> result{CUDA_SUCCESS};
  std::atomic<Symbol> last_failed{symbol_count};

  void disarm() noexcept {
    all.disarm();
    for (Counter& counter : by_symbol) counter.disarm();
  }
};

State& state() {
  // Never destroyed: background threads may still call while the process exits.
  static State& instance = *new State;
  return instance;
}

template <Symbol symbol, auto member>
struct Entry;

template <Symbol symbol, typename... Arguments, CUresult (*CudaDriver::*member)(Arguments...)>
struct Entry<symbol, member> {
  static CUresult call(Arguments... arguments) {
    State& s = state();
    // Both counters count, also when only one of them is armed.
    const bool chosen = s.all.next_fails();
    if (s.by_symbol[symbol].next_fails() || chosen) {
      s.last_failed.store(symbol, std::memory_order_relaxed);
      return s.result.load(std::memory_order_relaxed);
    }
    return (s.wrapped.*member)(arguments...);
  }
};

template <Symbol symbol, auto member>
void wrap(CudaDriver& table) {
  if constexpr (!never_fails(symbol)) {
    if (table.*member != nullptr) table.*member = &Entry<symbol, member>::call;
  }
}

std::shared_ptr<const CudaDriver> wrapping_table(const CudaDriver& driver) {
  auto table = std::make_shared<CudaDriver>(driver);
#define POLYPATH_CUDA(member, name, type, need) wrap<symbol_##member, &CudaDriver::member>(*table);
#include "driver/cuda_symbols.def"
  return table;
}

void require_nth(std::uint64_t nth) {
  if (nth == 0) throw InvalidArgument("fault injection: calls are numbered from 1");
}

}  // namespace

FaultInjector::FaultInjector(std::shared_ptr<const CudaDriver> driver) {
  if (state().in_use.exchange(true)) throw Error("fault injection: another injector exists");
  state().wrapped = *driver;
  driver_ = wrapping_table(*driver);
  clear();
}

FaultInjector::~FaultInjector() {
  state().disarm();
  state().in_use.store(false);
}

void FaultInjector::fail(std::string_view symbol, std::uint64_t nth, CUresult result) {
  require_nth(nth);
  for (std::size_t i = 0; i < symbol_count; ++i) {
    if (kNames[i] != symbol || never_fails(static_cast<Symbol>(i))) continue;
    state().disarm();
    state().result.store(result, std::memory_order_relaxed);
    state().by_symbol[i].arm(nth);
    return;
  }
  throw InvalidArgument("fault injection: no call \"" + std::string(symbol) + "\" that may fail");
}

void FaultInjector::fail_call(std::uint64_t nth, CUresult result) {
  require_nth(nth);
  state().disarm();
  state().result.store(result, std::memory_order_relaxed);
  state().all.arm(nth);
}

void FaultInjector::clear() noexcept {
  State& s = state();
  s.disarm();
  s.all.calls.store(0, std::memory_order_relaxed);
  for (Counter& counter : s.by_symbol) counter.calls.store(0, std::memory_order_relaxed);
  s.last_failed.store(symbol_count, std::memory_order_relaxed);
}

std::uint64_t FaultInjector::calls() const noexcept {
  return state().all.calls.load(std::memory_order_relaxed);
}

std::map<std::string, std::uint64_t> FaultInjector::calls_by_symbol() const {
  std::map<std::string, std::uint64_t> counts;
  for (std::size_t i = 0; i < symbol_count; ++i) {
    const std::uint64_t calls = state().by_symbol[i].calls.load(std::memory_order_relaxed);
    if (calls != 0) counts.emplace(kNames[i], calls);
  }
  return counts;
}

std::string FaultInjector::last_failed() const {
  const Symbol symbol = state().last_failed.load(std::memory_order_relaxed);
  return symbol == symbol_count ? std::string() : std::string(kNames[symbol]);
}

}  // namespace polypath
