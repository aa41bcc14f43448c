#include "core/own_transfers.hpp"

#include <algorithm>
#include <utility>

namespace polypath {

std::uint64_t OwnTransfers::least_ns(std::optional<int> link, std::uint64_t bytes) const {
  if (!link) return 0;
  const Link& of = node_.links[static_cast<std::size_t>(*link)];
  return static_cast<std::uint64_t>(static_cast<double>(bytes) /
                                    std::max(of.gbps, of.nominal_gbps));
}

OwnTransfers::Interval OwnTransfers::interval_of(const Request& request, std::uintptr_t stream,
                                                 std::uint64_t now_ns) const {
  std::uint64_t begin_ns = now_ns;
  for (const Interval& each : kept_)
    if (each.stream == stream && each.end_ns <= now_ns + kForgottenNs)
      begin_ns = std::max(begin_ns, each.end_ns);
  return {request, stream, begin_ns,
          begin_ns + least_ns(node_.find_link(request.src, request.dst), request.bytes)};
}

void OwnTransfers::add_concurrent(const Interval& one, std::vector<Request>& concurrent) const {
  struct Sum {
    Request pair;
    std::uint64_t ns = 0;
  };
  std::vector<Sum> sums;
  for (const Interval& other : kept_) {
    if (other.stream == one.stream || one.is_of(other.request)) continue;
    const std::uint64_t begin_ns = std::max(one.begin_ns, other.begin_ns);
    const std::uint64_t end_ns = std::min(one.end_ns, other.end_ns);
    if (begin_ns >= end_ns) continue;
    const auto same =
        std::ranges::find_if(sums, [&](const Sum& sum) { return other.is_of(sum.pair); });
    Sum& sum = same != sums.end()
                   ? *same
                   : sums.emplace_back(Request{other.request.src, other.request.dst});
    sum.ns += end_ns - begin_ns;
  }
  const double least_ns = kMinOverlap * static_cast<double>(one.end_ns - one.begin_ns);
  for (const Sum& sum : sums)
    if (static_cast<double>(sum.ns) >= least_ns) concurrent.push_back(sum.pair);
}

OwnTransfers::Begun OwnTransfers::begin(std::span<const Request> requests,
                                        std::span<const std::uintptr_t> streams,
                                        std::uint64_t now_ns, std::vector<Request>& concurrent) {
  const std::lock_guard lock(mutex_);
  Begun result{.first = begun_, .lead_ns = kForgottenNs};
  // What is planned together is known to the plan already.
  std::vector<Interval> begun;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    begun.push_back(interval_of(requests[i], streams[i], now_ns));
    const Interval& one = begun.back();
    result.lead_ns = std::min(result.lead_ns, one.begin_ns - now_ns);
    add_concurrent(one, concurrent);
    int earlier = 0;
    for (std::uint64_t n = begun_; n > 0 && begun_ - n < kKept && earlier < kMaxEarlier; --n) {
      const Interval& last = at(n - 1);
      if (!last.is_of(one.request)) continue;
      ++earlier;
      if (last.end_ns + kForgottenNs < now_ns || last.begin_ns > now_ns + kForgottenNs) continue;
      add_concurrent(last, concurrent);
    }
  }
  for (const Interval& one : begun) at(begun_++) = one;
  return result;
}

void OwnTransfers::planned(std::uint64_t first, const Plan& plan) {
  const std::lock_guard lock(mutex_);
  for (std::size_t t = 0; t < plan.transfers.size(); ++t) {
    const std::uint64_t number = first + t;
    if (number >= begun_ || begun_ - number > kKept || plan.transfers[t].routes.empty()) continue;
    std::uint64_t ns = 0;
    for (const RouteShare& share : plan.transfers[t].routes)
      for (const int leg : share.route.legs) ns = std::max(ns, least_ns(leg, share.bytes));
    at(number).end_ns = at(number).begin_ns + ns;
  }
}

}  // namespace polypath
