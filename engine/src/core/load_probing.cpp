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
  is_in_doubt_ = std::ranges::any_of(measured_, [](const Measured& measured) {
    return measured.lateness > 0 || measured.losses > 0;
  });
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
      // For a graph only the total time is known: slower than the native copy is too slow. Plans do
      // not count its launch, which issues one node after another.
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
    Measured& measured = measured_[static_cast<std::size_t>(slot)];
    measured.lateness = std::max(0, measured.lateness + (verdict.is_late ? kLateSample : -1));
    if (!verdict.is_late) continue;
    if (!verdict.is_sure && measured.lateness < kSuspectLateness) {
      // The next transfer is sampled, however soon it comes.
      sampled_ns_[static_cast<std::size_t>(slot)] = 0;
      continue;
    }
    measured.lateness = 0;
    suspect(verdict.link, now_ns);
  }
  if (!has_whole && has_direct && kept.sampled == Sampled::transfer)
    count_loss(kept, times, has_lost, now_ns);
}

bool LoadMonitor::is_loss(const KeptSample& kept, const SampleTimes& times) {
  const auto latest = std::ranges::max_element(times.routes, {}, &SampleTimes::Late::us);
  const double total_us = times.total_us - kept.halted_us;
  // Without the latest route the others would have carried its part at the rates that they had.
  const double others_us = times.total_us - latest->us;
  const double without_us = others_us / std::max(kMinPart, 1 - kept.parts[latest->route]);
  return total_us > without_us * (1 + kLossPart) + kLossUs;
}

void LoadMonitor::count_loss(const KeptSample& kept, const SampleTimes& times, bool has_lost,
                             std::uint64_t now_ns) {
  const auto latest = std::ranges::max_element(times.routes, {}, &SampleTimes::Late::us);
  for (const KeptSample::Leg& leg : kept.legs) {
    if (!leg.is_staged) continue;
    const int slot = table_.slot_of(leg.link);
    Measured& measured = measured_[static_cast<std::size_t>(slot)];
    if (!has_lost || leg.route != latest->route) {
      measured.losses = 0;
      measured.hold_ns = 0;
      continue;
    }
    // The next transfer is sampled, however soon it comes.
    sampled_ns_[static_cast<std::size_t>(slot)] = 0;
    // One that loses again after it was held back is held back at once, and for longer.
    if (++measured.losses < kLosses && measured.hold_ns == 0) continue;
    measured.losses = 0;
    measured.hold_ns =
        measured.hold_ns == 0 ? kLossHoldNs : std::min(2 * measured.hold_ns, kLongestHoldNs);
    table_.hold(slot, now_ns, measured.hold_ns);
    // When it is over, probes have found out whether the link is free.
    suspect(leg.link, now_ns);
  }
}

void LoadMonitor::suspect(int link, std::uint64_t now_ns) {
  const int slot = table_.slot_of(link);
  Measured& measured = measured_[static_cast<std::size_t>(slot)];
  if (!measured.link.suspect(now_ns)) return;
  measured.probe_link = link;
  set_state(slot);
  next_probe_ns_ = now_ns;
  if (!is_virtual_) wake();
}

void LoadMonitor::set_state(int slot) {
  const Measured& measured = measured_[static_cast<std::size_t>(slot)];
  const bool is_loaded = measured.is_held || measured.link.is_loaded();
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
    Measured& measured = measured_[static_cast<std::size_t>(slot)];
    auto& is_requested = is_wanted_[static_cast<std::size_t>(slot)];
    // One that is under way is waited for even when the link was forgotten meanwhile.
    if (!measured.is_under_way &&
        !measured.link.is_due(now, is_requested.load(std::memory_order_relaxed))) {
      if (measured.link.is_loaded())
        next_probe = std::min(next_probe, measured.link.next_probe_ns());
      continue;
    }
    const int link = measured.probe_link >= 0 ? measured.probe_link : table_.link_of(slot);
    const bool begins = !measured.is_under_way;
    if (begins && measured.link.postpone(now, table_.own(slot).left_ns(now))) {
      next_probe = std::min(next_probe, measured.link.next_probe_ns());
      again_in(measured.link.next_probe_ns() - now);
      continue;
    }
    if (begins) {
      is_requested = false;
      measured.link.probe_began();
      measured.begun_ns = now;
    }
    std::optional<double> us;
    bool is_over = false;
    bool is_possible = true;
    // In virtual time the thread that holds the lock does all.
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
    measured.is_under_way = !is_over;
    if (!is_over) {
      const std::uint64_t age = now - measured.begun_ns;
      again_in(age > kLostPauseNs ? kLostPauseNs : std::clamp(age / 8, kMinPauseNs, kProbePauseNs));
      continue;
    }
    if (!is_virtual_) now = now_ns();
    if (is_possible)
      measured.link.probe_ended(now, us);
    else
      measured.link.probe_impossible(now);
    set_state(slot);
    if (!is_virtual_) publish(slot, now, true);
    changed_.notify_all();
    if (measured.link.is_loaded()) {
      next_probe = std::min(next_probe, measured.link.next_probe_ns());
      if (measured.link.is_due(measured.link.next_probe_ns(), false))
        again_in(std::max<std::uint64_t>(
            1, measured.link.next_probe_ns() > now ? measured.link.next_probe_ns() - now : 1));
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
    Measured& measured = measured_[static_cast<std::size_t>(slot)];
    MeasuredLink never_probed = measured.link;
    if (!never_probed.suspect_unless_probed(0)) continue;
    measured.is_held = true;
    set_state(slot);
  }
}

void LoadMonitor::check(const Route& route, bool is_prepared) noexcept {
  if (!is_measuring_ || is_virtual_) return;
  std::unique_lock lock(mutex_);
  std::vector<int> slots;
  for (const int leg : route.legs) {
    const int slot = table_.slot_of(leg);
    Measured& measured = measured_[static_cast<std::size_t>(slot)];
    if (!measured.is_held) continue;
    measured.is_held = false;
    if (is_prepared && measured.link.suspect_unless_probed(now_ns())) {
      measured.probe_link = leg;
      slots.push_back(slot);
    }
    set_state(slot);
  }
  if (slots.empty()) return;
  wake();
  changed_.wait_for(lock, kCheckFor, [&] {
    return is_stopped_ || std::ranges::all_of(slots, [&](int slot) {
             const Measured& measured = measured_[static_cast<std::size_t>(slot)];
             return !measured.link.is_loaded() ||
                    !measured.link.is_due(measured.link.next_probe_ns(), false);
           });
  });
}

}  // namespace polypath
