// Kernels that send active messages and execute them.
#include "active_kernels.h"
#include "polypath/device/active_messages.cuh"
#include "simt/platform.cuh"

namespace polypath::test {

SIMT_DEVICE std::uint32_t hash_of(std::uint32_t number, std::uint32_t place) {
  std::uint32_t value = number * 0x9E3779B9U + place * 0x85EBCA6BU + 1;
  value = (value ^ value >> 16) * 0x7FEB352DU;
  return value ^ value >> 15;
}

/// What is sent of a message: its number among its rank's, and words that follow from it.
template <unsigned kWords>
struct Marked {
  std::uint32_t number;
  std::uint32_t words[kWords];
};
template <unsigned kWords>
SIMT_DEVICE Marked<kWords> marked(std::uint32_t number) {
  Marked<kWords> result;
  result.number = number;
  for (unsigned i = 0; i < kWords; ++i) result.words[i] = hash_of(number, i);
  return result;
}
template <unsigned kWords>
SIMT_DEVICE void count(const Marked<kWords>& message, std::uint32_t* counts, std::uint32_t* wrong) {
  bool is_right = true;
  for (unsigned i = 0; i < kWords; ++i)
    is_right = is_right && message.words[i] == hash_of(message.number, i);
  if (is_right)
    simt::red_add_relaxed(counts + message.number, 1U);
  else
    simt::red_add_relaxed(wrong, 1U);
}

struct Answer {
  using arguments = Marked<2>;
  ActiveRow row;
  SIMT_DEVICE void operator()(unsigned, const arguments& message) const {
    count(message, row.answered, row.wrong);
  }
};
/// Replies to every message but those of a number that ends with 7.
struct Ask {
  using arguments = Marked<7>;
  ActiveRow row;
  SIMT_DEVICE device::reply<Answer> operator()(unsigned source, const arguments& message) const {
    count(message, row.executed + source * row.of_rank, row.wrong);
    return {marked<2>(message.number), message.number % 8 != 7};
  }
};
struct Mark {
  using arguments = Marked<1>;
  ActiveRow row;
  SIMT_DEVICE void operator()(unsigned source, const arguments& message) const {
    count(message, row.executed + source * row.of_rank, row.wrong);
    if (row.order == 0) return;
    const std::uint32_t of_team = row.of_rank / row.teams;
    std::uint32_t* const last = row.last + source * row.teams + message.number / of_team;
    if (simt::load_relaxed(last) > message.number % of_team) simt::red_add_relaxed(row.wrong, 1U);
    simt::store_relaxed(last, message.number % of_team);
  }
};

template <typename Group>
SIMT_DEVICE_NOINLINE void run_active(const ActiveRow& row) {
  const auto team = device::detail::team_of(Group{});
  const unsigned own =
      (simt::block_index() * simt::block_size() + simt::thread_index()) / team.size();
  device::active_messages<Ask, Answer, Mark> messages(row.view, Ask{row}, Answer{row}, Mark{row});
  device::status result = device::status::done;
  for (unsigned call = 0; call < row.sends && result == device::status::done; ++call) {
    const std::uint32_t number = (own * row.sends + call) * team.size() + team.rank();
    const std::uint32_t to = (own + call) % row.view.ranks;
    if (call % 3 == 2 || row.order != 0)
      result = messages.send<Mark>(Group{}, to, marked<1>(number));
    else
      result = messages.send<Ask>(Group{}, to, marked<7>(number));
  }
  if (result == device::status::done && team.is_leader() &&
      simt::atomic_add_acq_rel(row.done, 1U) == row.teams - 1)
    messages.close();
  team.sync();
  if (result == device::status::done && (row.order == 0 || own == 0))
    result = messages.progress_until_closed(Group{});
  if (team.is_leader()) simt::store(row.results + own, static_cast<std::uint32_t>(result));
  if (own != 0 || !team.is_leader()) return;
  for (unsigned rank = 0; rank < row.view.ranks; ++rank) {
    simt::store(row.counts + 2 * rank, messages.sent(rank));
    simt::store(row.counts + 2 * rank + 1, messages.executed(rank));
  }
}

SIMT_KERNEL(polypath_test_active, 256, ActiveRow row) {
  if (row.members == Members::thread) run_active<simt::this_thread>(row);
  if (row.members == Members::warp) run_active<simt::this_warp>(row);
  if (row.members == Members::block) run_active<simt::this_block>(row);
}

/// One block that sends nothing, and executes what comes until it hears of an abort.
SIMT_KERNEL(polypath_test_active_polls, 256, ActiveRow row) {
  device::active_messages<Mark> messages(row.view, Mark{row});
  const device::this_block group{};
  device::status result = device::status::empty;
  bool is_aborted = false;
  while ((result == device::status::empty || result == device::status::done) && !is_aborted) {
    result = messages.progress(group);
    is_aborted = messages.is_aborted(group);
  }
  simt::store(row.results + simt::thread_index() / 32,
              is_aborted ? 1000 + static_cast<std::uint32_t>(result) : 0U);
}

}  // namespace polypath::test
