#include "core/link_load.hpp"

#include <algorithm>
#include <cstddef>

namespace polypath {
namespace {

/// A probe that takes longer than this many times its idle time waited for something. Where another
/// engine of the GPU serves the other copies, both share the link, and a probe of 1 MiB takes 1.8
/// times its idle time.
constexpr double kQuick = 1.4;
/// One that takes at most this many times as long may have met something odd: another says more.
constexpr double kUnsure = 2.5;
/// The quickest probe seen stands for the idle link up to this many times the model's figure: when
/// all probes so far met traffic, the quickest of them is no idle one.
constexpr double kLargestIdle = 3;
/// Weight of a new waiting time in the average.
constexpr double kNewPart = 0.25;
constexpr double kLongestWaitUs = 1e6;
/// No sample is older when it is judged. What seems to end later than that ends at a time of a
/// clock that jumped.
constexpr std::uint64_t kLongestSampleNs = 20'000'000'000;

}  // namespace

// ---- known --------------------------------------------------------------------------------------

std::uint64_t OccupiedUntil::add(std::uint64_t now_ns, std::uint64_t ns) noexcept {
  std::uint64_t until = until_ns_.load(std::memory_order_relaxed);
  for (;;) {
    const std::uint64_t left = std::min(left_ns(until, now_ns) + ns, kLongestNs);
    if (until_ns_.compare_exchange_weak(until, now_ns + left, std::memory_order_relaxed))
      return now_ns + left;
  }
}

void OccupiedUntil::raise(std::uint64_t now_ns, std::uint64_t until_ns) noexcept {
  std::uint64_t until = until_ns_.load(std::memory_order_relaxed);
  while (left_ns(until, now_ns) == 0 || until < until_ns)
    if (until_ns_.compare_exchange_weak(until, until_ns, std::memory_order_relaxed)) return;
}

// ---- measured -----------------------------------------------------------------------------------

bool MeasuredLink::suspect(std::uint64_t now_ns) {
  if (is_loaded_) return false;
  is_loaded_ = true;
  is_alarm_ = true;
  quick_probes_ = unsure_probes_ = 0;
  pause_ns_ = 0;
  wait_us_ = 0;
  alarm_ns_ = next_probe_ns_ = now_ns;
  return true;
}

bool MeasuredLink::postpone(std::uint64_t now_ns, std::uint64_t left_ns) noexcept {
  if (!is_alarm_ || left_ns == 0 || now_ns - alarm_ns_ > kLongestDrainNs) return false;
  next_probe_ns_ = now_ns + std::min(left_ns, kFirstPauseNs);
  return true;
}

bool MeasuredLink::suspect_unless_probed(std::uint64_t now_ns) {
  if (quickest_us_ > 0 || !suspect(now_ns)) return false;
  is_alarm_ = false;
  return true;
}

bool MeasuredLink::is_due(std::uint64_t now_ns, bool is_wanted) const noexcept {
  if (!is_loaded_ || is_probed_now_) return false;
  // Right after the alarm, and between probes that together say something, a probe is due also
  // without a transfer that needs the link.
  const bool is_open = is_wanted || pause_ns_ == 0 || quick_probes_ > 0 || unsure_probes_ > 0;
  // A clock that jumped back does not put the probe off.
  return is_open && (now_ns >= next_probe_ns_ || next_probe_ns_ - now_ns > kMaxPollIntervalNs);
}

double MeasuredLink::idle_us() const noexcept {
  return std::clamp(quickest_us_, model_us_, kLargestIdle * model_us_);
}

bool MeasuredLink::probe_ended(std::uint64_t now_ns, std::optional<double> us) {
  is_probed_now_ = false;
  if (us && *us > 0) quickest_us_ = quickest_us_ == 0 ? *us : std::min(quickest_us_, *us);
  if (!is_loaded_) return false;
  if (us && *us > kQuick * idle_us() && *us <= kUnsure * idle_us() &&
      ++unsure_probes_ <= kUnsureProbes) {
    next_probe_ns_ = now_ns;
    return false;
  }
  unsure_probes_ = 0;
  if (us && *us <= kQuick * idle_us()) {
    if (++quick_probes_ < kQuickProbes) {
      next_probe_ns_ = now_ns + (is_alarm_ ? 0 : kSecondLookNs);
      return false;
    }
    is_loaded_ = false;
    if (is_alarm_) raise_factor(now_ns);
    return true;
  }
  is_alarm_ = false;
  quick_probes_ = 0;
  pause_ns_ = pause_ns_ == 0 ? kFirstPauseNs : std::min(2 * pause_ns_, kMaxPollIntervalNs);
  next_probe_ns_ = now_ns + pause_ns_;
  if (us) {
    confirmed_ns_ = std::max<std::uint64_t>(now_ns, 1);
    const double wait_us = std::clamp(*us - idle_us(), 0.0, kLongestWaitUs);
    wait_us_ = wait_us_ == 0 ? wait_us : (1 - kNewPart) * wait_us_ + kNewPart * wait_us;
  }
  return false;
}

bool MeasuredLink::probe_impossible(std::uint64_t now_ns) {
  is_probed_now_ = false;
  if (!is_loaded_) return false;
  is_loaded_ = false;
  raise_factor(now_ns);
  return true;
}

void MeasuredLink::raise_factor(std::uint64_t now_ns) noexcept {
  factor_ = std::min(2 * factor(now_ns), kLargestFactor);
  factor_ns_ = now_ns;
}

double MeasuredLink::factor(std::uint64_t now_ns) const noexcept {
  if (factor_ == 1) return 1;
  // A clock that jumped back: as long ago as can be.
  const std::uint64_t periods = now_ns >= factor_ns_ ? (now_ns - factor_ns_) / kForgetNs : 64;
  double factor = factor_;
  for (std::uint64_t i = 0; i < periods && factor > 1; ++i) factor /= 2;
  return std::max(factor, 1.0);
}

bool MeasuredLink::was_loaded_lately(std::uint64_t now_ns) const noexcept {
  return confirmed_ns_ != 0 && now_ns - confirmed_ns_ < kLatelyNs;
}

double IssueTimes::add(double us, double model_us) noexcept {
  // Times grow slowly: some are those of threads that were halted.
  constexpr double kFaster = 0.25;
  constexpr double kSlower = 0.0625;
  const double now = std::min(us / std::max(model_us, 1e-3), kLargestRatio);
  const double before = ratio_.load(std::memory_order_relaxed);
  ratio_.store(before == 0 ? now : before + (now - before) * (now < before ? kFaster : kSlower),
               std::memory_order_relaxed);
  const double usual_us = ratio() * model_us;
  return us > kHalted * usual_us ? us - usual_us : 0;
}

// ---- the table ----------------------------------------------------------------------------------

std::string_view to_string(LoadSource source) noexcept {
  switch (source) {
    case LoadSource::none: return "free";
    case LoadSource::own_copies: return "copies of this process";
    case LoadSource::other_process: return "copies of another process";
    case LoadSource::measured: return "measured";
    case LoadSource::measured_by_other: return "measured by another process";
  }
  return "?";
}

Tolerance tolerance(double predicted_us, double native_us, int staged_routes) noexcept {
  const double gain_us = std::max(0.0, native_us - predicted_us);
  const auto each_ns = static_cast<std::uint64_t>(gain_us * 500 / std::max(1, staged_routes));
  return {each_ns, std::max(each_ns, static_cast<std::uint64_t>(predicted_us * 1000))};
}

LinkTable::LinkTable(const Node& node)
    : slot_of_(node.links.size(), -1),
      host_slots_(2 * node.gpus.size(), -1),
      gpu_slots_(node.gpus.size() * node.gpus.size(), -1),
      gpus_(node.gpus.size()) {
  for (const Port& port : node.ports) ports_.push_back({.gbps = port.gbps, .slots = {}});
  for (std::size_t i = 0; i < node.links.size(); ++i) {
    const Link& link = node.links[i];
    int* host = nullptr;
    if (link.from.is_host() || link.to.is_host()) {
      const int gpu = link.from.is_gpu() ? link.from.index : link.to.index;
      host = &host_slots_[2 * static_cast<std::size_t>(gpu) + (link.to.is_host() ? 0 : 1)];
    }
    const bool is_known = host != nullptr && *host >= 0;
    const int slot = slot_of_[i] = is_known ? *host : slots();
    for (const int port : link.ports) {
      auto& shared = ports_[static_cast<std::size_t>(port)].slots;
      if (std::ranges::find(shared, slot, &std::pair<int, double>::first) == shared.end())
        shared.emplace_back(slot, link.gbps);
    }
    if (is_known) continue;
    if (host != nullptr)
      *host = slot;
    else
      gpu_slots_[gpus_ * static_cast<std::size_t>(link.from.index) +
                 static_cast<std::size_t>(link.to.index)] = slot;
    slot_links_.push_back(static_cast<int>(i));
  }
  table_ = std::vector<Slot>(slot_links_.size());
}

int LinkTable::host_slot(int gpu, bool to_host) const noexcept {
  const std::size_t at = 2 * static_cast<std::size_t>(gpu) + (to_host ? 0 : 1);
  return gpu >= 0 && at < host_slots_.size() ? host_slots_[at] : -1;
}

int LinkTable::gpu_slot(int from, int to) const noexcept {
  const std::size_t at = gpus_ * static_cast<std::size_t>(from) + static_cast<std::size_t>(to);
  return from >= 0 && to >= 0 && at < gpu_slots_.size() ? gpu_slots_[at] : -1;
}

void LinkTable::add_copy(int slot, std::uint64_t now_ns, std::uint64_t ns,
                         std::uintptr_t stream) noexcept {
  Slot& to = at(slot);
  const std::uint64_t grace_ns = std::min(ns / 2, kLongestGraceNs);
  const bool is_same = to.stream.exchange(stream, std::memory_order_relaxed) == stream;
  const bool follows = is_same && to.direct.until_ns() + grace_ns > now_ns;
  to.direct.add(now_ns, ns);
  to.grace_ns.store(follows ? grace_ns : 0, std::memory_order_relaxed);
  to.busy_ns.fetch_add(ns, std::memory_order_relaxed);
}

void LinkTable::add_staged(int slot, std::uint64_t now_ns, std::uint64_t ns) noexcept {
  at(slot).staged.add(now_ns, ns);
  at(slot).busy_ns.fetch_add(ns, std::memory_order_relaxed);
}

void LinkTable::add_own(int slot, std::uint64_t now_ns, std::uint64_t ns,
                        std::uintptr_t stream) noexcept {
  Slot& to = at(slot);
  to.own.add(now_ns, ns);
  // Read after the exchange: a thread that came between both has added its part by then.
  if (to.own_stream.exchange(stream, std::memory_order_relaxed) != stream)
    to.others.raise(now_ns, to.own.until_ns() - ns);
}

void LinkTable::extend_own(int slot, std::uint64_t now_ns, std::uint64_t ns,
                           std::uintptr_t stream) noexcept {
  Slot& to = at(slot);
  to.own.raise(now_ns, now_ns + ns);
  if (to.own_stream.load(std::memory_order_relaxed) != stream) to.others.raise(now_ns, now_ns + ns);
}

std::uint64_t LinkTable::others_left_ns(int slot, const std::vector<std::uintptr_t>& streams,
                                        std::uint64_t now_ns) const noexcept {
  const Slot& state = at(slot);
  const std::uintptr_t last = state.own_stream.load(std::memory_order_relaxed);
  const bool is_of_look = std::ranges::find(streams, last) != streams.end();
  return (is_of_look ? state.others : state.own).left_ns(now_ns);
}

bool LinkTable::has_others(int slot, std::uintptr_t stream, std::uint64_t since_ns) const noexcept {
  const Slot& state = at(slot);
  if (state.issuing.load(std::memory_order_relaxed) > 0) return true;
  const bool is_last = state.own_stream.load(std::memory_order_relaxed) == stream;
  const std::uint64_t until = (is_last ? state.others : state.own).until_ns();
  return until > since_ns && until - since_ns <= kLongestSampleNs;
}

bool LinkTable::has_full_port(const std::vector<int>& slots, std::uintptr_t stream,
                              std::uint64_t since_ns) const noexcept {
  return std::ranges::any_of(ports_, [&](const SharedPort& port) {
    double own_gbps = 0;
    double others_gbps = 0;
    for (const auto& [slot, gbps] : port.slots) {
      if (std::ranges::find(slots, slot) != slots.end()) own_gbps += gbps;
      if (has_others(slot, stream, since_ns)) others_gbps += gbps;
    }
    return own_gbps > 0 && others_gbps > 0 && own_gbps + others_gbps > port.gbps;
  });
}

void LinkTable::hold(int slot, std::uint64_t now_ns, std::uint64_t ns) noexcept {
  at(slot).held.clear();
  at(slot).held.add(now_ns, ns);
}

LinkState LinkTable::state(int slot, std::uint64_t now_ns, const Tolerance& tolerance,
                           const std::vector<std::uintptr_t>& streams,
                           const std::vector<ForeignLoad>& others) const noexcept {
  const Slot& state = at(slot);
  const auto us = [](std::uint64_t ns) { return static_cast<double>(ns) / 1e3; };
  if (state.is_measured.load(std::memory_order_relaxed) || state.held.left_ns(now_ns) > 0)
    return {LoadSource::measured, 0, 0};
  if (const std::uint64_t left = OccupiedUntil::left_ns(direct_end_ns(slot), now_ns);
      left > tolerance.ns &&
      std::ranges::find(streams, state.stream.load(std::memory_order_relaxed)) == streams.end())
    return {LoadSource::own_copies, us(left), 0};
  for (const ForeignLoad& other : others) {
    if (other.slot != slot) continue;
    const std::uint64_t direct = OccupiedUntil::left_ns(other.direct_until_ns, now_ns);
    const std::uint64_t staged = OccupiedUntil::left_ns(other.staged_until_ns, now_ns);
    if (direct > tolerance.ns || staged > tolerance.staged_ns)
      return {LoadSource::other_process, us(std::max(direct, staged)), other.pid};
    if (OccupiedUntil::left_ns(other.measured_until_ns, now_ns) > 0)
      return {LoadSource::measured_by_other, 0, other.pid};
  }
  return {};
}

void LinkTable::clear() noexcept {
  for (Slot& slot : table_) {
    slot.direct.clear();
    slot.grace_ns = 0;
    slot.staged.clear();
    slot.own.clear();
    slot.others.clear();
    slot.held.clear();
    slot.is_measured = false;
  }
}

}  // namespace polypath
