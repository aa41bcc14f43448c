#include "core/own_transfers.hpp"

#include <algorithm>
#include <functional>

namespace polypath {

std::uint64_t OwnTransfers::min_ns(std::optional<int> link, std::uint64_t bytes) const {
  if (!link) return 0;
  const Link& used = node_.links[static_cast<std::size_t>(*link)];
  return static_cast<std::uint64_t>(static_cast<double>(bytes) /
                                    std::max(used.gbps, used.nominal_gbps));
}

std::uint64_t OwnTransfers::min_native_ns(const Request& request) const {
  return min_ns(node_.find_link(request.src, request.dst), request.bytes);
}

std::uint64_t OwnTransfers::min_ns(const TransferPlan& plan) const {
  if (plan.routes.empty()) return min_native_ns(plan.request);
  std::uint64_t ns = 0;
  for (const RouteShare& share : plan.routes)
    for (const int leg : share.route.legs) ns = std::max(ns, min_ns(leg, share.bytes));
  return ns;
}

OwnTransfers::Row OwnTransfers::row_of(const Request& request, std::uintptr_t stream,
                                       std::uint64_t now_ns, std::uint64_t alone_ns) const {
  std::uint64_t queued_ns = 0;
  for (const Row& row : rows_)
    if (row.stream == stream && row.busy_until_ns <= now_ns + kLongestQueueNs)
      queued_ns = std::max(queued_ns, row.busy_until_ns);
  Row row;
  row.request = request;
  row.stream = stream;
  row.thread = std::this_thread::get_id();
  row.begin_ns = row.last_begin_ns = std::max(now_ns, queued_ns);
  row.alone_ns = alone_ns;
  row.end_ns = row.busy_until_ns = row.begin_ns + alone_ns;
  row.has_pause = row.begin_ns > queued_ns + min_native_ns(request);
  return row;
}

void OwnTransfers::add_concurrent(const Row& row, std::uint64_t alone_ns,
                                  std::vector<Concurrent>& neighbours) const {
  std::vector<Concurrent> sums;  // by stream and pair
  for (const Row& other : rows_) {
    if (other.stream == row.stream || row.has_pair_of(other.request)) continue;
    const std::uint64_t begin_ns = std::max(row.begin_ns, other.begin_ns);
    const std::uint64_t end_ns = std::min(row.end_ns, other.end_ns);
    if (begin_ns >= end_ns) continue;
    auto sum = std::ranges::find_if(sums, [&](const Concurrent& each) {
      return each.stream == other.stream && other.has_pair_of(each.pair);
    });
    if (sum == sums.end())
      sum = sums.insert(sum,
                        {.stream = other.stream, .pair = {other.request.src, other.request.dst}});
    sum->ns += end_ns - begin_ns;
    sum->is_by_thread = sum->is_by_thread || other.thread == std::this_thread::get_id();
  }
  // A stream sends between one pair at a time: that which it sends for longest counts.
  std::ranges::sort(sums, std::ranges::greater(), &Concurrent::ns);
  std::vector<Concurrent> next_to;
  for (const Concurrent& sum : sums)
    if (std::ranges::find(next_to, sum.stream, &Concurrent::stream) == next_to.end() &&
        std::ranges::find(neighbours, sum.stream, &Concurrent::stream) == neighbours.end())
      next_to.push_back(sum);
  const double enough_ns =
      kMinOverlap * static_cast<double>(std::max(row.end_ns - row.begin_ns, alone_ns));
  for (const Concurrent& each : next_to) {
    std::uint64_t ns = 0;
    for (const Concurrent& other : next_to) ns += other.pair == each.pair ? other.ns : 0;
    if (static_cast<double>(ns) >= enough_ns) neighbours.push_back(each);
  }
}

std::uint64_t OwnTransfers::add(const Row& row) {
  for (std::uint64_t n = begun_; n > 0 && is_kept(n - 1); --n) {
    Row& last = at(n - 1);
    if (last.stream != row.stream) continue;
    if (!last.has_pair_of(row.request) || last.busy_until_ns != row.begin_ns) break;
    last.request = row.request;
    last.last_begin_ns = row.begin_ns;
    last.end_ns = last.busy_until_ns = row.end_ns;
    last.alone_ns = row.alone_ns;
    last.has_pause = false;
    return n - 1;
  }
  at(begun_) = row;
  return begun_++;
}

OwnTransfers::Start OwnTransfers::begin(std::span<const Request> requests,
                                        std::span<const std::uintptr_t> streams,
                                        std::uint64_t now_ns, const Plan* alone) {
  const std::lock_guard lock(mutex_);
  Start start;
  start.lead_ns = kLongestQueueNs;
  start.rows.reserve(requests.size());
  std::vector<Row> rows;  // what is planned together is known to the plan already
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const std::uint64_t alone_ns = alone != nullptr && i < alone->transfers.size()
                                       ? min_ns(alone->transfers[i])
                                       : min_native_ns(requests[i]);
    const Row& row = rows.emplace_back(row_of(requests[i], streams[i], now_ns, alone_ns));
    start.lead_ns = std::min(start.lead_ns, row.begin_ns - now_ns);
    std::vector<Concurrent> neighbours;
    add_concurrent(row, alone_ns, neighbours);
    int earlier = 0;
    for (std::uint64_t n = begun_; n > 0 && is_kept(n - 1) && earlier < kMaxEarlier; --n) {
      const Row& last = at(n - 1);
      if (!last.has_pair_of(row.request)) continue;
      ++earlier;
      if (last.end_ns + kForgottenNs < now_ns || last.begin_ns > now_ns + kLongestQueueNs) continue;
      add_concurrent(last, alone_ns, neighbours);
    }
    for (const Concurrent& each : neighbours) {
      start.concurrent.push_back(each.pair);
      if (each.is_by_thread) start.by_thread.push_back(each.pair);
    }
  }
  for (const Row& row : rows) start.rows.push_back(add(row));
  return start;
}

void OwnTransfers::set_plan(const Start& start, std::size_t first, const Plan& plan) {
  const std::lock_guard lock(mutex_);
  for (std::size_t t = 0; t < plan.transfers.size() && first + t < start.rows.size(); ++t) {
    if (!is_kept(start.rows[first + t])) continue;
    Row& row = at(start.rows[first + t]);
    row.end_ns = row.busy_until_ns = row.last_begin_ns + min_ns(plan.transfers[t]);
  }
}

void OwnTransfers::set_native(const Start& start, bool is_shared) {
  const std::lock_guard lock(mutex_);
  for (const std::uint64_t number : start.rows) {
    if (!is_kept(number)) continue;
    Row& row = at(number);
    row.end_ns = row.busy_until_ns = row.last_begin_ns + min_native_ns(row.request);
    if (is_shared && row.has_pause) row.end_ns = row.last_begin_ns + row.alone_ns;
  }
}

}  // namespace polypath
