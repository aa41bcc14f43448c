// NCCL calls functions of its own by name, and then comes here: those calls, and this library's
// own, go straight back to it.
#pragma once

namespace polypath::nccl {

/// While it lives, what this thread calls is not the program's.
class InsideNccl {
 public:
  InsideNccl() noexcept { ++depth; }
  ~InsideNccl() { --depth; }
  InsideNccl(const InsideNccl&) = delete;
  InsideNccl& operator=(const InsideNccl&) = delete;

  static bool is_inside() noexcept { return depth > 0; }

 private:
  static constinit thread_local int depth;
};

}  // namespace polypath::nccl
