// Which threads poll which words. Kept by lines of 64 bytes, so that a store finds the threads that
// wait for it, or that there are none, without a search. Threads are woken by the addresses that
// they poll, and for one address in the order in which they began: simulated time is the same in
// each run.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace polypath::simt {

struct Thread;

class Pollers {
 public:
  void add(std::uintptr_t address, Thread* thread);
  /// One poll of that address by the thread, which was added.
  void remove(std::uintptr_t address, const Thread* thread);
  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }

  /// Appends to `matches` the threads that poll an address from `begin` to before `end`, in their
  /// order.
  void find(std::uintptr_t begin, std::uintptr_t end, std::vector<Thread*>& matches) const;
  /// All, in their order.
  [[nodiscard]] std::vector<Thread*> all() const;

 private:
  static constexpr std::uintptr_t kLineBytes = 64;
  static constexpr std::uintptr_t kLines = 64;
  static constexpr std::uintptr_t kPageBytes = kLineBytes * kLines;
  static constexpr std::size_t kMaxIdlePages = 1024;

  struct Poll {
    std::uintptr_t address;
    Thread* thread;
  };
  struct Page {
    std::uint64_t polled = 0;  ///< a bit for each line
    std::array<std::vector<Poll>, kLines> lines;
  };

  static std::size_t line_of(std::uintptr_t address) noexcept {
    return address / kLineBytes % kLines;
  }

  std::unordered_map<std::uintptr_t, Page> pages_;  // by address / kPageBytes
  std::size_t count_ = 0;
};

}  // namespace polypath::simt
