// NCCL calls functions of its own by name, and then comes here: those calls, and this library's
// own, go straight back to it.
#pragma once

namespace polypath::nccl {

/// While it lives, what this thread calls is not the program's.
class ReentrancyGuard {
 public:
  ReentrancyGuard() noexcept { ++depth; }
  ~ReentrancyGuard() { --depth; }
  ReentrancyGuard(const ReentrancyGuard&) = delete;
  ReentrancyGuard& operator=(const ReentrancyGuard&) = delete;

  static bool is_inside() noexcept { return depth > 0; }

 private:
  static constinit thread_local int depth;
};

}  // namespace polypath::nccl
