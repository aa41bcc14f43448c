#include "support/traffic.hpp"

#include <cstddef>
#include <map>
#include <numeric>

#include <fmt/format.h>

namespace polypath::test {
namespace {

template <typename Count>
std::uint64_t bytes_of(const Count& counts, const typename Count::key_type& key) {
  const auto it = counts.find(key);
  return it == counts.end() ? 0 : it->second.bytes;
}

/// Bytes that `after` counts beyond `before`, where there are any.
template <typename Count>
std::map<typename Count::key_type, std::uint64_t> moved(const Count& before, const Count& after) {
  std::map<typename Count::key_type, std::uint64_t> bytes;
  for (const auto& [key, count] : after)
    if (const auto more = count.bytes - bytes_of(before, key); more != 0) bytes[key] = more;
  return bytes;
}

template <typename Array>
std::uint64_t sum(const Array& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

}  // namespace

std::uint64_t Traffic::split() const {
  return context_.counters().snapshot().split - before_.split;
}
std::uint64_t Traffic::followed() const {
  return context_.counters().snapshot().followed - before_.followed;
}
std::uint64_t Traffic::failed() const {
  return context_.counters().snapshot().failed - before_.failed;
}
std::uint64_t Traffic::bytes() const {
  return context_.counters().snapshot().bytes - before_.bytes;
}
std::uint64_t Traffic::native() const {
  return sum(context_.counters().snapshot().native) - sum(before_.native);
}
std::uint64_t Traffic::native(NativeReason reason) const {
  const auto index = static_cast<std::size_t>(reason);
  return context_.counters().snapshot().native[index] - before_.native[index];
}
std::uint64_t Traffic::excluded(ExclusionReason reason) const {
  const auto index = static_cast<std::size_t>(reason);
  return context_.counters().snapshot().excluded[index] - before_.excluded[index];
}

testing::AssertionResult Traffic::went_as(const Plan& plan) const {
  std::map<Counters::RouteKey, std::uint64_t> routes;
  std::map<int, std::uint64_t> links;
  std::uint64_t copies = 0;
  std::uint64_t native_copies = 0;
  for (const TransferPlan& transfer : plan.transfers) {
    if (transfer.native()) {
      ++native_copies;
      continue;
    }
    for (const RouteShare& share : transfer.routes) {
      routes[{transfer.request.src, transfer.request.dst, to_string(share.route)}] += share.bytes;
      for (const int leg : share.route.legs) links[leg] += share.bytes;
      copies += static_cast<std::uint64_t>(share.chunks) * share.route.legs.size();
    }
  }
  const Counters::Snapshot after = context_.counters().snapshot();
  const auto wrong = [&] { return testing::AssertionFailure() << plan.reason << ": "; };
  if (failed() != 0) return wrong() << failed() << " transfers failed";
  if (native() != native_copies)
    return wrong() << native() << " transfers went natively instead of " << native_copies << ":"
                   << native_reasons();
  if (bytes() != plan.bytes())
    return wrong() << bytes() << " bytes were counted instead of " << plan.bytes();
  if (moved(before_.routes, after.routes) != routes)
    return wrong() << "the bytes by route are not those of the plan";
  if (moved(before_.links, after.links) != links)
    return wrong() << "the bytes by link are not those of the plan";
  if (after.copies - before_.copies != copies)
    return wrong() << after.copies - before_.copies << " copies instead of " << copies;
  return testing::AssertionSuccess();
}

std::string Traffic::native_reasons() const {
  std::string reasons;
  for (std::size_t i = 0; i < before_.native.size(); ++i)
    if (const auto reason = static_cast<NativeReason>(i); native(reason) != 0)
      reasons += fmt::format(" {} x {}", native(reason), to_string(reason));
  return reasons;
}

testing::AssertionResult Traffic::went_natively(NativeReason reason, std::uint64_t count) const {
  if (native(reason) == 1 && native() == 1 && split() == 0 && failed() == 0 && bytes() == count)
    return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << "expected one native copy of " << count << " bytes (" << to_string(reason)
         << "), but counted " << split() << " split, " << failed() << " failed, " << bytes()
         << " bytes; native:" << native_reasons();
}

}  // namespace polypath::test
