// The measured half of the monitor: what samples say, and probes.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <map>
#include <system_error>

#include "base/log.hpp"
#include "base/thread.hpp"
#include "core/load_monitor.hpp"
#include "exec/relaxed_capture.hpp"

namespace polypath {
namespace {

/// A sample that has not ended by then is asked for again.
constexpr std::uint64_t kReadAgainNs = 50'000;
constexpr std::uint64_t kForgetSampleNs = 10'000'000'000;
/// A staged route is late when it ends later than the direct one by this part of the prediction,
constexpr double kLatePart = 0.2;
/// and by this much.
constexpr double kLateUs = 20;
/// What a late sample adds to a link's lateness, of which one in time takes 1; when the link is
/// suspect: a second late one does it, though two in time lie between. Transfers and others' turns
/// at an engine may fall into step.
constexpr int kLateSample = 3;
constexpr int kSuspectLateness = 4;
/// A transfer loses when it takes longer than it would have taken without its latest route, by more
/// than what times vary.
constexpr double kLossPart = 0.01;
constexpr double kLossUs = 2;
/// No route is taken to carry more than all but this part.
constexpr double kMinPart = 0.01;
/// Losses in a row after which a route is held back, and for how long.
constexpr int kLosses = 2;
constexpr std::uint64_t kLossHoldNs = 40'000'000;
constexpr std::uint64_t kLongestHoldNs = 320'000'000;
/// The pauses in which a probe that is under way is asked for.
constexpr std::uint64_t kMinPauseNs = 30'000;
constexpr std::uint64_t kProbePauseNs = 20'000'000;
constexpr std::uint64_t kLostPauseNs = 1'000'000'000;
constexpr std::chrono::milliseconds kCheckFor{100};

}  // namespace

// ---- samples ------------------------------------------------------------------------------------

void LoadMonitor::read_samples(std::uint64_t now_ns) {
  const RelaxedCapture relaxed(*driver_);
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return;
  std::erase_if(kept_, [&](KeptSample& kept) {
    SampleTimes times;
    switch (is_past(kept.due_ns, now_ns) ? kept.sample->read(*driver_, times)
                                         : TransferSample::State::pending) {
      case TransferSample::State::pending:
        // The stream holds the transfer back, for longer than is worth remembering.
        return now_ns - kept.kept_ns > kForgetSampleNs;
      case TransferSample::State::failed:
        for (const KeptSample::Leg& leg : kept.legs)
          if (leg.is_staged) suspect(leg.link, now_ns);
        return true;
      case TransferSample::State::read: judge(kept, times, now_ns); return true;
    }
    return true;
  });
  kept_count_ = kept_.size();
  next_read_ns_ = now_ns + kReadAgainNs;
}

bool LoadMonitor::was_alone(const KeptSample& kept, bool has_whole) const {
  std::vector<int> slots;
  for (const KeptSample::Leg& leg : kept.legs) {
    if (!leg.is_staged && !has_whole) continue;
    slots.push_back(table_.slot_of(leg.link));
    if (table_.has_others(slots.back(), kept.stream, kept.kept_ns)) return false;
  }
  return !table_.has_full_port(slots, kept.stream, kept.kept_ns);
}

void LoadMonitor::judge(const KeptSample& kept, const SampleTimes& times, std::uint64_t now_ns) {
  // Transfers of several streams at once delay each other, as no plan foresees.
  const bool has_whole = times.routes.empty();
  if (!was_alone(kept, has_whole)) return;
  const double late_us = std::max(kLateUs, kLatePart * kept.predicted_us);
  const bool has_direct = kept.direct_part > 0;
  // A route that is late and yet saves time is not left out: without it the transfer takes longer.
  const bool has_lost = !has_whole && has_direct && is_loss(kept, times);
  const bool may_be_late = has_whole || !has_direct || has_lost;
  struct Verdict {
    int link = 0;
    bool is_late = false;
    bool is_sure = false;
  };
  std::map<int, Verdict> verdicts;  // by slot, which routes may share
  for (const KeptSample::Leg& leg : kept.legs) {
    if (!leg.is_staged) continue;
    double factor = 1;
    for (const KeptSample::Leg& other : kept.legs)
      if (other.route == leg.route)
        factor = std::max(
            factor,
            measured_[static_cast<std::size_t>(table_.slot_of(other.link))].link.factor(now_ns));
    double us = 0;
    double allowed_us = late_us * factor + kept.halted_us;
    if (has_whole) {
      // Of a graph only the whole is known: slower than the native copy is too slow. Plans do not
      // count its launch, which issues one node after another.
      us = times.total_us;
      allowed_us += std::max(kept.predicted_us, kept.native_us) + kept.launch_us;
    } else {
      for (const SampleTimes::Late& late : times.routes)
        if (late.route == leg.route) us = late.us;
      if (!has_direct) allowed_us += kept.predicted_us;
    }
    const int slot = table_.slot_of(leg.link);
    Verdict& verdict = verdicts[slot];
    if (!may_be_late || us <= allowed_us) continue;
    // Something odd makes a copy late now and then, but hardly by more than all of it takes.
    const bool is_sure = us > allowed_us + std::max(kept.native_us, kept.predicted_us) ||
                         measured_[static_cast<std::size_t>(slot)].link.was_loaded_lately(now_ns);
    verdict = {leg.link, true, verdict.is_sure || is_sure};
  }
  for (const auto& [slot, verdict] : verdicts) {
    Measured& one = measured_[static_cast<std::size_t>(slot)];
    one.lateness = std::max(0, one.lateness + (verdict.is_late ? kLateSample : -1));
    if (!verdict.is_late) continue;
    if (!verdict.is_sure && one.lateness < kSuspectLateness) {
      // The next transfer is sampled, however soon it comes.
      sampled_ns_[static_cast<std::size_t>(slot)] = 0;
      continue;
    }
    one.lateness = 0;
    suspect(verdict.link, now_ns);
  }
  if (!has_whole && has_direct && kept.sampled == Sampled::transfer)
    count_loss(kept, times, has_lost, now_ns);
}

bool LoadMonitor::is_loss(const KeptSample& kept, const SampleTimes& times) {
  // Without the latest route the others would have carried its part at the rates that they had.
  const auto latest = std::ranges::max_element(times.routes, {}, &SampleTimes::Late::us);
  const double others_us = times.total_us - latest->us;
  const double without_us = others_us / std::max(kMinPart, 1 - kept.parts[latest->route]);
  return times.total_us - kept.halted_us > without_us * (1 + kLossPart) + kLossUs;
}

void LoadMonitor::count_loss(const KeptSample& kept, const SampleTimes& times, bool has_lost,
                             std::uint64_t now_ns) {
  const auto latest = std::ranges::max_element(times.routes, {}, &SampleTimes::Late::us);
  for (const KeptSample::Leg& leg : kept.legs) {
    if (!leg.is_staged) continue;
    const int slot = table_.slot_of(leg.link);
    Measured& one = measured_[static_cast<std::size_t>(slot)];
    if (!has_lost || leg.route != latest->route) {
      one.losses = 0;
      one.hold_ns = 0;
      continue;
    }
    // The next transfer is sampled, however soon it comes.
    sampled_ns_[static_cast<std::size_t>(slot)] = 0;
    // One that loses again after it was held back is held back at once, and for longer.
    if (++one.losses < kLosses && one.hold_ns == 0) continue;
    one.losses = 0;
    one.hold_ns = one.hold_ns == 0 ? kLossHoldNs : std::min(2 * one.hold_ns, kLongestHoldNs);
    table_.hold(slot, now_ns, one.hold_ns);
    // When it is over, probes have found out whether the link is free.
    suspect(leg.link, now_ns);
  }
}

void LoadMonitor::suspect(int link, std::uint64_t now_ns) {
  const int slot = table_.slot_of(link);
  Measured& one = measured_[static_cast<std::size_t>(slot)];
  if (!one.link.suspect(now_ns)) return;
  one.probe_link = link;
  set_state(slot);
  next_probe_ns_ = now_ns;
  if (!is_virtual_) wake();
}

void LoadMonitor::set_state(int slot) {
  const Measured& one = measured_[static_cast<std::size_t>(slot)];
  const bool is_loaded = one.is_held || one.link.is_loaded();
  if (is_loaded != table_.is_measured(slot)) loaded_count_ += is_loaded ? 1 : -1;
  table_.set_measured(slot, is_loaded);
}

// ---- probes -------------------------------------------------------------------------------------

void LoadMonitor::wake() {
  if (is_stopped_) return;
  is_asked_ = true;
  try {
    if (!thread_.joinable()) thread_ = make_thread([this](std::stop_token stop) { run(stop); });
  } catch (const std::system_error& error) {
    log_warn("links that others use are not probed: {}", error.what());
    is_stopped_ = true;
  }
  changed_.notify_all();
}

std::uint64_t LoadMonitor::step(std::unique_lock<std::mutex>& lock, std::uint64_t now) {
  std::uint64_t pause = 0;
  const auto again_in = [&](std::uint64_t ns) { pause = pause == 0 ? ns : std::min(pause, ns); };
  std::uint64_t next_probe = ~std::uint64_t{0};
  for (int slot = 0; slot < table_.slots(); ++slot) {
    Measured& one = measured_[static_cast<std::size_t>(slot)];
    auto& wanted = is_wanted_[static_cast<std::size_t>(slot)];
    // One that is under way is waited for even when the link was forgotten meanwhile.
    if (!one.is_under_way && !one.link.is_due(now, wanted.load(std::memory_order_relaxed))) {
      if (one.link.is_loaded()) next_probe = std::min(next_probe, one.link.next_probe_ns());
      continue;
    }
    const int link = one.probe_link >= 0 ? one.probe_link : table_.link_of(slot);
    const bool begins = !one.is_under_way;
    if (begins && one.link.postpone(now, table_.own(slot).left_ns(now))) {
      next_probe = std::min(next_probe, one.link.next_probe_ns());
      again_in(one.link.next_probe_ns() - now);
      continue;
    }
    if (begins) {
      wanted = false;
      one.link.probe_began();
      one.begun_ns = now;
    }
    std::optional<double> us;
    bool is_over = false;
    bool is_possible = true;
    // In virtual time all is done by whoever holds the lock.
    if (!is_virtual_) lock.unlock();
    try {
      if (begins)
        probes_.begin(link);
      else
        is_over = (us = probes_.poll(link)).has_value();
    } catch (const std::exception& error) {
      is_over = true;
      is_possible = dynamic_cast<const ProbeImpossible*>(&error) == nullptr;
      log_info("the link from {} to {} is not probed: {}",
               to_string(node_.links[static_cast<std::size_t>(link)].from),
               to_string(node_.links[static_cast<std::size_t>(link)].to), error.what());
    }
    if (!is_virtual_) lock.lock();
    one.is_under_way = !is_over;
    if (!is_over) {
      const std::uint64_t age = now - one.begun_ns;
      again_in(age > kLostPauseNs ? kLostPauseNs : std::clamp(age / 8, kMinPauseNs, kProbePauseNs));
      continue;
    }
    if (!is_virtual_) now = now_ns();
    if (is_possible)
      one.link.probe_ended(now, us);
    else
      one.link.probe_impossible(now);
    set_state(slot);
    if (!is_virtual_) publish(slot, now, true);
    changed_.notify_all();
    if (one.link.is_loaded()) {
      next_probe = std::min(next_probe, one.link.next_probe_ns());
      if (one.link.is_due(one.link.next_probe_ns(), false))
        again_in(std::max<std::uint64_t>(
            1, one.link.next_probe_ns() > now ? one.link.next_probe_ns() - now : 1));
    }
  }
  next_probe_ns_ = next_probe;
  return pause;
}

void LoadMonitor::run(std::stop_token stop) {
  // What is made here must not break a capture that another thread has under way.
  const RelaxedCapture relaxed(*driver_);
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    is_asked_ = false;
    const std::uint64_t pause = step(lock, now_ns());
    const auto is_asked = [&] { return is_asked_; };
    if (pause == 0)
      changed_.wait(lock, stop, is_asked);
    else
      changed_.wait_for(lock, stop, std::chrono::nanoseconds(pause), is_asked);
  }
}

// ---- the route that is prepared now -------------------------------------------------------------

void LoadMonitor::hold(const Route& route) noexcept {
  if (!is_measuring_ || is_virtual_) return;
  const std::lock_guard lock(mutex_);
  for (const int leg : route.legs) {
    // Others use links of host memory, seldom those between GPUs.
    const Link& link = node_.links[static_cast<std::size_t>(leg)];
    if (link.from.is_gpu() && link.to.is_gpu()) continue;
    const int slot = table_.slot_of(leg);
    Measured& one = measured_[static_cast<std::size_t>(slot)];
    MeasuredLink never_probed = one.link;
    if (!never_probed.suspect_unless_probed(0)) continue;
    one.is_held = true;
    set_state(slot);
  }
}

void LoadMonitor::check(const Route& route, bool is_prepared) noexcept {
  if (!is_measuring_ || is_virtual_) return;
  std::unique_lock lock(mutex_);
  std::vector<int> slots;
  for (const int leg : route.legs) {
    const int slot = table_.slot_of(leg);
    Measured& one = measured_[static_cast<std::size_t>(slot)];
    if (!one.is_held) continue;
    one.is_held = false;
    if (is_prepared && one.link.suspect_unless_probed(now_ns())) {
      one.probe_link = leg;
      slots.push_back(slot);
    }
    set_state(slot);
  }
  if (slots.empty()) return;
  wake();
  changed_.wait_for(lock, kCheckFor, [&] {
    return is_stopped_ || std::ranges::all_of(slots, [&](int slot) {
             const Measured& one = measured_[static_cast<std::size_t>(slot)];
             return !one.link.is_loaded() || !one.link.is_due(one.link.next_probe_ns(), false);
           });
  });
}

}  // namespace polypath
