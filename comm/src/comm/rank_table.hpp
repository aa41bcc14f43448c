// The ranks of a communicator: process, user, GPU.
#pragma once

#include <vector>

#include "comm/process.hpp"

namespace polypath {

struct Member {
  ProcessId process;
  int gpu = 0;        ///< its GPU, as this process numbers them
  bool here = false;  ///< a rank of this process
};

/// By rank; `rank` is this one.
struct Members {
  int rank = 0;
  std::vector<Member> all;

  [[nodiscard]] int size() const noexcept { return static_cast<int>(all.size()); }
  /// How many ranks this process has.
  [[nodiscard]] int here() const noexcept {
    int count = 0;
    for (const Member& member : all) count += member.here ? 1 : 0;
    return count;
  }
};

}  // namespace polypath
