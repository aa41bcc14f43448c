#include "comm/late_release.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <utility>

#include "base/kept.hpp"
#include "base/log.hpp"
#include "base/thread.hpp"

namespace polypath {
namespace {

using std::chrono::milliseconds;

/// Between looks at processes; others ring the bell of the board.
constexpr milliseconds kFirstPause{10};
constexpr milliseconds kLongestPause{500};

/// Counts threads of release_late().
class Running {
 public:
  Running() { ++count_; }
  ~Running() {
    --count_;
    count_.notify_all();
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  static void wait_for_none() {
    for (int count = count_; count > 0; count = count_) count_.wait(count);
  }

 private:
  inline static std::atomic<int> count_{0};
};

struct Waiting : Keepable<Waiting> {
  Waiting(std::shared_ptr<ControlSegment> segment, const Members& members)
      : board(std::move(segment)) {
    for (int rank = 0; rank < members.size(); ++rank) {
      const Member& member = members.all[static_cast<std::size_t>(rank)];
      if (!member.here) others.push_back({rank, ProcessWatch(member.process)});
    }
  }

  /// Whether no rank reaches into the memory any more.
  bool is_free() {
    for (Other& other : others)
      if (board->may_reach(other.rank) && other.process.ended()) {
        board->ended(other.rank, fmt::format("rank {} has ended", other.rank));
        board->set_reaching(other.rank, false);
      }
    for (int rank = 0; rank < board->size(); ++rank)
      if (board->may_reach(rank)) return false;
    return true;
  }

  struct Other {
    int rank;
    ProcessWatch process;
  };
  std::shared_ptr<ControlSegment> board;
  std::vector<Other> others;  // of other processes
  std::vector<std::function<void()>> releases;
  std::function<bool()> stops;
};

void wait_and_release(std::unique_ptr<Waiting> waiting) {
  milliseconds pause = kFirstPause;
  while (true) {
    const std::uint32_t heard = waiting->board->bell();
    // What the releases hold goes with the context, or stays there.
    if (waiting->stops()) return Waiting::keep(std::move(waiting));
    if (waiting->is_free()) break;
    waiting->board->wait_bell(heard, pause);
    pause = std::min(2 * pause, kLongestPause);
  }
  for (const auto& release : waiting->releases) release();
  if (waiting->stops()) Waiting::keep(std::move(waiting));
}

}  // namespace

void release_late(const std::shared_ptr<ControlSegment>& board, const Members& members,
                  std::vector<std::function<void()>> releases,
                  std::function<bool()> stops) noexcept {
  if (releases.empty()) return;
  std::unique_ptr<Waiting> waiting;
  try {
    waiting = std::make_unique<Waiting>(board, members);
    waiting->releases = std::move(releases);
    waiting->stops = std::move(stops);
    // The thread owns it as soon as there is one.
    make_thread([owned = waiting.get(), running = std::make_unique<Running>()] {
      wait_and_release(std::unique_ptr<Waiting>(owned));
    }).detach();
    static_cast<void>(waiting.release());
  } catch (const std::exception& error) {
    log_warn("memory of a communicator is kept: {}", error.what());
    if (waiting != nullptr) Waiting::keep(std::move(waiting));
  }
}

void wait_for_late_releases() { Running::wait_for_none(); }

}  // namespace polypath
