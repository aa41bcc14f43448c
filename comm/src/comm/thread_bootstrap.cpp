#include "comm/thread_bootstrap.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "base/error.hpp"

namespace polypath {
namespace {

class Meeting {
 public:
  Meeting(int size, std::chrono::milliseconds limit)
      : limit_(limit),
        bytes_(static_cast<std::size_t>(size)),
        rounds_(bytes_.size(), 0),
        taken_(bytes_.size(), 0) {}

  void exchange(int rank, std::span<const std::byte> local, std::span<std::byte> all) {
    std::unique_lock lock(mutex_);
    const auto own = static_cast<std::size_t>(rank);
    const std::uint64_t round = rounds_[own] + 1;
    // This rank is done with the last round, but others may still need what it gave.
    wait(lock, "end the last exchange",
         [&](std::size_t other) { return taken_[other] + 1 >= round; });
    bytes_[own].assign(local.begin(), local.end());
    rounds_[own] = round;
    changed_.notify_all();
    wait(lock, "come", [&](std::size_t other) { return rounds_[other] >= round; });
    take(all, local.size());
    taken_[own] = round;
    changed_.notify_all();
  }

 private:
  template <typename Condition>
  void wait(std::unique_lock<std::mutex>& lock, const char* what, const Condition& holds) {
    std::vector<std::size_t> missing;
    const bool done = changed_.wait_for(lock, limit_, [&] {
      missing.clear();
      for (std::size_t other = 0; other < bytes_.size(); ++other)
        if (!holds(other)) missing.push_back(other);
      return missing.empty() || !failure_.empty();
    });
    if (!done)
      fail(fmt::format("rank {} did not {} within {} ms", fmt::join(missing, ", "), what,
                       limit_.count()));
    if (!failure_.empty()) throw CommunicatorError(failure_);
  }
  void take(std::span<std::byte> all, std::size_t bytes) {
    for (std::size_t rank = 0; rank < bytes_.size(); ++rank) {
      if (bytes_[rank].size() != bytes)
        fail(fmt::format("rank {} gave {} bytes where another gave {}", rank, bytes_[rank].size(),
                         bytes));
      std::ranges::copy(bytes_[rank], all.begin() + static_cast<std::ptrdiff_t>(rank * bytes));
    }
  }
  [[noreturn]] void fail(std::string why) {
    if (failure_.empty()) failure_ = std::move(why);
    changed_.notify_all();
    throw CommunicatorError(failure_);
  }

  const std::chrono::milliseconds limit_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::vector<std::byte>> bytes_;  // by rank, of its last round
  std::vector<std::uint64_t> rounds_;          // by rank: the last one that it has come to,
  std::vector<std::uint64_t> taken_;           // and the last one of which it has all bytes
  std::string failure_;
};

}  // namespace

std::vector<HostAllGather> thread_exchanges(int size, std::chrono::milliseconds limit) {
  const auto meeting = std::make_shared<Meeting>(size, limit);
  std::vector<HostAllGather> exchanges;
  for (int rank = 0; rank < size; ++rank)
    exchanges.emplace_back(
        [meeting, rank](std::span<const std::byte> local, std::span<std::byte> all) {
          meeting->exchange(rank, local, all);
        });
  return exchanges;
}

}  // namespace polypath
