#include "comm/call_levels.hpp"

#include "comm/communicator_impl.hpp"

namespace polypath {

CallLevels::CallLevels(ControlSegment& segment, int rank)
    : segment_(segment), rank_(rank), words_(segment), agreement_(rank, segment.size()) {}

void CallLevels::propose(std::uint8_t flags) noexcept {
  segment_.proposed_level(rank_).store(flags, std::memory_order_relaxed);
}

std::uint8_t CallLevels::begin_call() noexcept {
  if (rank_ == 0) {
    unsigned of_any = 0;
    unsigned of_all = kOfAllRanks;
    for (int rank = 0; rank < segment_.size(); ++rank) {
      const unsigned proposed = segment_.proposed_level(rank).load(std::memory_order_relaxed);
      of_any |= proposed;
      of_all &= proposed;
    }
    const auto next = static_cast<std::uint8_t>(of_all | (of_any & ~unsigned{kOfAllRanks}));
    if (next != agreement_.level()) agreement_.propose(words_, next);
  }
  return agreement_.begin_call(words_);
}

CallLevels& Communicator::levels() {
  if (!impl_->levels) impl_->levels.emplace(*impl_->board, rank());
  return *impl_->levels;
}

}  // namespace polypath
