#include "virtual_devices.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>
#include <utility>

#include "failure.hpp"

namespace polypath::sim {

VirtualDevices::Clock& VirtualDevices::clock_of_thread() {
  thread_local Clock clock;
  return clock;
}

double VirtualDevices::own_clock_us() const {
  const Clock& clock = clock_of_thread();
  return std::max(clock.devices == this ? clock.us : latest_us_, timeline_.now_us());
}

void VirtualDevices::set_clock(double us) {
  clock_of_thread() = {this, us};
  latest_us_ = std::max(latest_us_, us);
  if (Issuer* const own = own_issuer()) {
    own->us = us;
    own->has_begun = true;
  }
}

VirtualDevices::Issuer* VirtualDevices::own_issuer() {
  const auto own = std::ranges::find(issuers_, std::this_thread::get_id(), &Issuer::thread);
  return own == issuers_.end() ? nullptr : &*own;
}

void VirtualDevices::set_issuing(int number) {
  const double begin_us = std::max(latest_us_, own_clock_us());
  if (Issuer* const own = own_issuer()) {
    if (whose_turn_ == own) whose_turn_ = nullptr;
    issuers_.remove_if([own](const Issuer& issuer) { return &issuer == own; });
  }
  if (number == 0) return;
  issuers_.push_back({.thread = std::this_thread::get_id(), .number = number});
  for (Issuer& issuer : issuers_)
    if (!issuer.has_begun) issuer.us = begin_us;
}

double VirtualDevices::next_call_us(const Issuer& issuer) const {
  if (!issuer.counts || (issuer.holds != nullptr && !(*issuer.holds)())) return Timeline::kNever;
  return issuer.holds == nullptr ? issuer.us : std::max(issuer.us, timeline_.now_us());
}

double VirtualDevices::horizon_us() const {
  double horizon = Timeline::kNever;
  for (const Issuer& issuer : issuers_)
    if (issuer.thread != std::this_thread::get_id())
      horizon = std::min(horizon, next_call_us(issuer));
  return horizon;
}

void VirtualDevices::take_turn() {
  Issuer* const own = own_issuer();
  if (own == nullptr) return;
  // Where it began others may have moved it to.
  if (!own->has_begun) set_clock(own->us);
  own->counts = true;
  if (whose_turn_ == own) whose_turn_ = nullptr;
  wait_for_turn(*own);
}

bool VirtualDevices::is_next(const Issuer& own) {
  if (whose_turn_ != nullptr) return false;
  // Until then the devices may do what another one waits for.
  catch_up();
  return std::ranges::none_of(issuers_, [&](const Issuer& issuer) {
    return &issuer != &own &&
           std::pair(next_call_us(issuer), issuer.number) < std::pair(own.us, own.number);
  });
}

void VirtualDevices::wait_for_turn(Issuer& own) {
  const auto all_us = [this] {
    double sum = timeline_.now_us();
    for (const Issuer& issuer : issuers_) sum += issuer.us;
    return std::pair(sum, issuers_.size());
  };
  auto at = all_us();
  auto since = std::chrono::steady_clock::now();
  while (!is_next(own)) {
    if (all_us() != at) {
      at = all_us();
      since = std::chrono::steady_clock::now();
    } else if (std::chrono::steady_clock::now() - since > timeout_) {
      std::fprintf(stderr, "polypath_sim: a thread that issues work waits for others in vain\n");
      for (Issuer& issuer : issuers_) issuer.counts = &issuer == &own;
      whose_turn_ = nullptr;
      continue;
    }
    mutex_.unlock();
    std::this_thread::sleep_for(kPollInterval);
    mutex_.lock();
  }
  whose_turn_ = &own;
}

int VirtualDevices::start_traffic(TrafficFlow flow, bool /*from_file*/) {
  catch_up();
  flow.begin_us = std::max(flow.begin_us, own_clock_us());
  return timeline_.start_traffic(std::move(flow));
}

void VirtualDevices::stop_traffic(int id) {
  catch_up();
  timeline_.stop_traffic(id);
}

std::uint64_t VirtualDevices::traffic_blocks(int id) {
  catch_up();
  return timeline_.traffic_blocks(id);
}

int VirtualDevices::traffic_queued(int id) {
  catch_up();
  return timeline_.traffic_queued(id);
}

void VirtualDevices::catch_up() {
  const double clock_us = own_clock_us();
  timeline_.poll(clock_us);
  // The program may have written what kernels wait for.
  if (KernelTimeline* const companion = timeline_.companion()) companion->look(timeline_.now_us());
  // One thing after another: each may be what a thread that issues work waits for.
  while (!issuers_.empty() && timeline_.next_us() <= std::min(clock_us, horizon_us()))
    timeline_.step();
  timeline_.run_until(std::min(clock_us, horizon_us()));
}

void VirtualDevices::wait_until(const std::function<bool()>& holds) {
  auto stuck_since = std::chrono::steady_clock::now();
  double stuck_at_us = timeline_.now_us();
  bool complained = false;
  // A waiting thread issues nothing, and lends out its turn.
  Issuer* const own = own_issuer();
  const bool has_turn = own != nullptr && whose_turn_ == own;
  if (has_turn) whose_turn_ = nullptr;
  if (own != nullptr) own->holds = &holds;
  const auto ends = [](Issuer* issuer) { issuer->holds = nullptr; };
  std::unique_ptr<Issuer, decltype(ends)> waiting(own, ends);
  while (!holds()) {
    // Where this thread keeps others out, none of them issues anything.
    if (!mutex_.is_alone() && timeline_.next_us() > horizon_us()) {
      stuck_since = std::chrono::steady_clock::now();
      mutex_.unlock();
      std::this_thread::sleep_for(kPollInterval);
      mutex_.lock();
      continue;
    }
    timeline_.poll(own_clock_us());
    KernelTimeline* const companion = timeline_.companion();
    const auto now = std::chrono::steady_clock::now();
    if (timeline_.step() || (companion != nullptr && companion->look(timeline_.now_us()))) {
      continue;
    }
    if (!timeline_.has_waiting()) {
      std::fprintf(stderr, "polypath_sim: deadlock: nothing is left that could complete\n");
      throw Failure{CUDA_ERROR_UNKNOWN};
    }
    if (timeline_.now_us() != stuck_at_us) {  // by this thread, or by another one that waits
      stuck_at_us = timeline_.now_us();
      stuck_since = now;
    }
    if (companion != nullptr && now - stuck_since > timeout_) {
      companion->give_up(timeline_.now_us());
      // Timed-out kernels wait for the program to take note.
      stuck_since = now - timeout_ + std::min<decltype(now - now)>(timeout_, kTakesNote);
    }
    if (!complained && now - stuck_since > kComplainAfter) {
      complained = true;
      std::fprintf(stderr,
                   "polypath_sim: a call still blocks on a stream that waits for a value or "
                   "for a function of the program\n");
    }
    mutex_.unlock();
    std::this_thread::sleep_for(poll_interval(now - stuck_since));
    mutex_.lock();
  }
  waiting.reset();
  if (own == nullptr) return;
  own->us = own_clock_us();
  if (has_turn && !mutex_.is_alone()) wait_for_turn(*own);
}

void VirtualDevices::wait(const OperationPtr& operation) {
  wait_until([&operation] { return operation->done; });
  set_clock(std::max(own_clock_us(), operation->end_us));
}

}  // namespace polypath::sim
