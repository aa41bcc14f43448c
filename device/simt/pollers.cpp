#include "simt/pollers.hpp"

#include <algorithm>

namespace polypath::simt {

void Pollers::add(std::uintptr_t address, Thread* thread) {
  Page& page = pages_[address / kPageBytes];
  const std::size_t line = line_of(address);
  std::vector<Poll>& polls = page.lines[line];
  const auto behind = std::ranges::upper_bound(polls, address, {}, &Poll::address);
  polls.insert(behind, {address, thread});
  page.polled |= std::uint64_t{1} << line;
  ++count_;
}

void Pollers::remove(std::uintptr_t address, const Thread* thread) {
  Page& page = pages_.find(address / kPageBytes)->second;
  const std::size_t line = line_of(address);
  std::vector<Poll>& polls = page.lines[line];
  polls.erase(std::ranges::find_if(
      polls, [&](const Poll& poll) { return poll.address == address && poll.thread == thread; }));
  if (polls.empty()) page.polled &= ~(std::uint64_t{1} << line);
  if (--count_ == 0 && pages_.size() > kMaxIdlePages) pages_.clear();
}

void Pollers::find(std::uintptr_t begin, std::uintptr_t end, std::vector<Thread*>& matches) const {
  if (count_ == 0 || begin >= end) return;
  const std::uintptr_t last = (end - 1) / kPageBytes;
  for (std::uintptr_t number = begin / kPageBytes; number <= last; ++number) {
    const auto page = pages_.find(number);
    if (page == pages_.end() || page->second.polled == 0) continue;
    const std::uintptr_t first_of_page = number * kPageBytes;
    const std::size_t from = begin > first_of_page ? line_of(begin) : 0;
    const std::size_t to = number == last ? line_of(end - 1) : kLines - 1;
    std::uint64_t lines = page->second.polled & (~std::uint64_t{0} << from) &
                          (~std::uint64_t{0} >> (kLines - 1 - to));
    for (; lines != 0; lines &= lines - 1)
      for (const Poll& poll : page->second.lines[static_cast<std::size_t>(std::countr_zero(lines))])
        if (poll.address >= begin && poll.address < end) matches.push_back(poll.thread);
  }
}

std::vector<Thread*> Pollers::all() const {
  std::vector<Poll> polls;
  polls.reserve(count_);
  for (const auto& [number, page] : pages_)
    for (std::uint64_t lines = page.polled; lines != 0; lines &= lines - 1) {
      const auto& line = page.lines[static_cast<std::size_t>(std::countr_zero(lines))];
      polls.insert(polls.end(), line.begin(), line.end());
    }
  std::ranges::stable_sort(polls, {}, &Poll::address);  // those of one address lie in one line
  std::vector<Thread*> threads;
  threads.reserve(polls.size());
  for (const Poll& poll : polls) threads.push_back(poll.thread);
  return threads;
}

}  // namespace polypath::simt
