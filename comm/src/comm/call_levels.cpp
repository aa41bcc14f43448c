#include "comm/call_levels.hpp"

#include <algorithm>

#include "comm/communicator_impl.hpp"

namespace polypath {

CallLevels::CallLevels(ControlSegment& segment, int rank)
    : segment_(segment), rank_(rank), words_(segment), agreement_(rank, segment.size()) {}

void CallLevels::propose(std::uint8_t level) noexcept {
  segment_.proposed_level(rank_).store(level, std::memory_order_relaxed);
}

std::uint8_t CallLevels::begin_call() noexcept {
  if (rank_ == 0) {
    std::uint8_t highest = 0;
    for (int rank = 0; rank < segment_.size(); ++rank)
      highest = std::max(highest, segment_.proposed_level(rank).load(std::memory_order_relaxed));
    if (highest != agreement_.level()) agreement_.propose(words_, highest);
  }
  return agreement_.begin_call(words_);
}

CallLevels& Communicator::levels() {
  if (!impl_->levels) impl_->levels.emplace(*impl_->board, rank());
  return *impl_->levels;
}

}  // namespace polypath
