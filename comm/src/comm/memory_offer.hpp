// What a rank tells the others of memory that they may open.
#pragma once

#include <cstring>

#include "comm/control_segment.hpp"
#include "comm/rank_error.hpp"
#include "comm/symmetric_memory.hpp"

namespace polypath {

struct SymmetricHeap::Offer {
  CUdeviceptr address = 0;
  CUipcMemHandle handle{};  ///< for ranks of other processes
  RankError problem;
};

/// The same as a note on the control segment. Address 0: there is no such memory.
struct MemoryNote {
  CUdeviceptr address = 0;
  CUipcMemHandle handle{};

  [[nodiscard]] ControlSegment::Note note() const noexcept {
    static_assert(sizeof(MemoryNote) <= sizeof(ControlSegment::Note));
    ControlSegment::Note bytes{};
    std::memcpy(bytes.data(), this, sizeof *this);
    return bytes;
  }
  static MemoryNote from(const ControlSegment::Note& bytes) noexcept {
    MemoryNote note;
    std::memcpy(&note, bytes.data(), sizeof note);
    return note;
  }
};

}  // namespace polypath
