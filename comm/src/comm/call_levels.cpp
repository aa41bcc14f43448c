#include "comm/call_levels.hpp"

#include "comm/communicator_impl.hpp"

namespace polypath {

CallLevels::CallLevels(ControlSegment& segment, int rank)
    : segment_(segment), rank_(rank), words_(segment), agreement_(rank, segment.size()) {}

void CallLevels::propose(std::uint8_t flags) noexcept {
  segment_.proposed_level(rank_).store(flags, std::memory_order_relaxed);
}

CallLevels& Communicator::levels() {
  if (!impl_->levels) impl_->levels.emplace(*impl_->board, rank());
  return *impl_->levels;
}

}  // namespace polypath
