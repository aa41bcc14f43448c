#include "comm/watchdog.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/thread.hpp"

namespace polypath {
namespace {

constexpr std::chrono::milliseconds kPeriod{50};
constexpr std::chrono::milliseconds kShortPeriod{1};

}  // namespace

Watchdog::Watchdog(std::shared_ptr<ControlSegment> board, const Members& members,
                   std::function<bool()> look)
    : board_(std::move(board)), look_(std::move(look)) {
  for (int rank = 0; rank < members.size(); ++rank) {
    const Member& member = members.all[static_cast<std::size_t>(rank)];
    if (member.here) continue;
    const auto known = std::ranges::find(others_, member.process.pid, &Other::pid);
    if (known != others_.end()) {
      known->ranks.push_back(rank);
    } else {
      others_.push_back({{rank}, ProcessWatch(member.process), member.process.pid});
    }
  }
  thread_ = make_thread([this](const std::stop_token& stop) { run(stop); });
}

Watchdog::~Watchdog() {
  thread_.request_stop();
  board_->wake_watchers();
}

void Watchdog::run(const std::stop_token& stop) {
  while (true) {
    const std::uint32_t seen = board_->watched();
    if (stop.stop_requested()) return;
    look_at_processes();
    board_->wait_watched(seen, look_() ? kPeriod : kShortPeriod);
  }
}

void Watchdog::look_at_processes() {
  for (Other& other : others_) {
    if (!other.process.ended()) continue;
    for (const int rank : other.ranks)
      if (!board_->has_left(rank))
        board_->ended(rank, fmt::format("rank {} (process {}) has ended", rank, other.pid));
  }
}

}  // namespace polypath
