// What is known of the load of each directed link: a table, and the state of one measured link.
// Pure: times are given, nothing here asks a driver or a clock.
//
// A copy engine serves processes in turns, and may serve one stream of this process as long as it
// has copies. A chunk on a link that others use waits for longer than most transfers take. So a
// link is free or it is left out, and nothing between: plans stay few, and graphs are found again.
//
//   known     copies of this process, and what other processes tell of theirs, occupy a link for
//             their bytes over its rate
//   measured  a staged route that ended late makes the links of its legs suspect; probes say
//             whether they are loaded, and when they are free again
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "topology/node.hpp"

namespace polypath {

/// The time until which copies occupy a link. Thread-safe, without a lock; all by relaxed atomics:
/// an estimate may miss an addition.
class OccupiedUntil {
 public:
  /// No estimate reaches further than this: a clock that jumps, or a wrong rate, does not keep a
  /// link occupied.
  static constexpr std::uint64_t kLongestNs = 1'000'000'000;

  /// Copies of `ns` more queue there. Returns the new end.
  std::uint64_t add(std::uint64_t now_ns, std::uint64_t ns) noexcept;
  /// How long a copy issued now waits.
  [[nodiscard]] std::uint64_t left_ns(std::uint64_t now_ns) const noexcept {
    return left_ns(until_ns_.load(std::memory_order_relaxed), now_ns);
  }
  /// As left_ns() above, for an end that was read elsewhere; 0 for an end that is too far off.
  [[nodiscard]] static std::uint64_t left_ns(std::uint64_t until_ns,
                                             std::uint64_t now_ns) noexcept {
    const std::uint64_t left = until_ns - now_ns;
    return until_ns > now_ns && left <= kLongestNs ? left : 0;
  }
  [[nodiscard]] std::uint64_t until_ns() const noexcept {
    return until_ns_.load(std::memory_order_relaxed);
  }
  /// Not before `until_ns`. An end that is over, or too far off to be true, is replaced.
  void raise(std::uint64_t now_ns, std::uint64_t until_ns) noexcept;
  void clear() noexcept { until_ns_.store(0, std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> until_ns_{0};
};

/// Whether `due_ns` is here, or further off than anything is ever set: then the clock jumped.
[[nodiscard]] constexpr bool is_past(std::uint64_t due_ns, std::uint64_t now_ns) noexcept {
  return now_ns >= due_ns || due_ns - now_ns > OccupiedUntil::kLongestNs;
}

/// The measured state of one link. Not thread-safe.
class MeasuredLink {
 public:
  static constexpr std::uint64_t kFirstPauseNs = 1'000'000;
  static constexpr std::uint64_t kMaxPollIntervalNs = 20'000'000;
  static constexpr std::uint64_t kSecondLookNs = 200'000;  ///< from a quick probe to the next one
  static constexpr std::uint64_t kLongestDrainNs = 5'000'000;
  static constexpr int kQuickProbes = 2;   ///< in a row: the link is free
  static constexpr int kUnsureProbes = 3;  ///< in a row that say nothing: the next one is slow
  static constexpr double kLargestFactor = 4;
  static constexpr std::uint64_t kForgetNs = 10'000'000'000;  ///< the factor halves after it
  static constexpr std::uint64_t kLatelyNs = 1'000'000'000;

  /// `model_us`: how long the cost model says that a probe takes on the idle link.
  explicit MeasuredLink(double model_us = 0) : model_us_(model_us) {}

  /// A staged route over it ended late. False: it counts as loaded already.
  bool suspect(std::uint64_t now_ns);
  /// It was never probed: it counts as loaded until it was.
  bool suspect_unless_probed(std::uint64_t now_ns);

  [[nodiscard]] bool is_loaded() const noexcept { return is_loaded_; }
  /// Whether to probe now. `is_wanted`: a transfer would have used the link since the last probe.
  [[nodiscard]] bool is_due(std::uint64_t now_ns, bool is_wanted) const noexcept;
  /// The earliest time of the next probe.
  [[nodiscard]] std::uint64_t next_probe_ns() const noexcept { return next_probe_ns_; }
  void probe_began() noexcept { is_probed_now_ = true; }
  /// Own staged legs are still on the link, and would delay a probe: it waits for them, but not for
  /// longer than kLongestDrainNs after the alarm. False: probe now.
  bool postpone(std::uint64_t now_ns, std::uint64_t left_ns) noexcept;
  /// A probe took `us`; nothing: it failed. Returns whether the link is free from now on and was
  /// not before.
  bool probe_ended(std::uint64_t now_ns, std::optional<double> us);

  /// It cannot be probed: it is free, and the next alarm needs more. Returns as probe_ended().
  bool probe_impossible(std::uint64_t now_ns);

  /// Measured: how long a copy waits there; 0 while it is free.
  [[nodiscard]] double wait_us() const noexcept { return is_loaded_ ? wait_us_ : 0; }
  /// How much later than usual a route may end before its links become suspect: false alarms raise
  /// it, time lowers it.
  [[nodiscard]] double factor(std::uint64_t now_ns) const noexcept;
  /// Whether a probe found it loaded within the last kLatelyNs.
  [[nodiscard]] bool was_loaded_lately(std::uint64_t now_ns) const noexcept;

 private:
  [[nodiscard]] double idle_us() const noexcept;
  void raise_factor(std::uint64_t now_ns) noexcept;

  double model_us_;
  double quickest_us_ = 0;  ///< 0: none yet
  bool is_loaded_ = false;
  bool is_probed_now_ = false;
  bool is_alarm_ = false;  ///< loaded by a route's end alone: no probe has confirmed it
  int quick_probes_ = 0;
  int unsure_probes_ = 0;
  std::uint64_t pause_ns_ = 0;
  std::uint64_t alarm_ns_ = 0;
  std::uint64_t next_probe_ns_ = 0;
  double wait_us_ = 0;
  double factor_ = 1;
  std::uint64_t factor_ns_ = 0;     ///< when it was raised last
  std::uint64_t confirmed_ns_ = 0;  ///< when a probe found it loaded last; 0: never
};

/// How long the CPU of this machine takes to issue what a model says, and what is more than usual.
/// Thread-safe; all by relaxed atomics: an estimate may miss a time.
class IssueTimes {
 public:
  /// What took longer than this many times the usual was halted in between.
  static constexpr double kHalted = 2;
  static constexpr double kLargestRatio = 8;

  /// An issue took `us`. Returns by how much longer its thread was halted; 0: it was not.
  double add(double us, double model_us) noexcept;
  /// Times by which a usual issue is longer than the model says; at least 1.
  [[nodiscard]] double ratio() const noexcept {
    return std::max(1.0, ratio_.load(std::memory_order_relaxed));
  }

 private:
  std::atomic<double> ratio_{0};  ///< 0: none yet
};

/// Why a link counts as loaded.
enum class LoadSource : std::uint8_t {
  none,              ///< it does not
  own_copies,        ///< copies of this process
  other_process,     ///< copies that another process tells of
  measured,          ///< probes of this process
  measured_by_other  ///< probes of another process
};
std::string_view to_string(LoadSource source) noexcept;

struct LinkState {
  LoadSource source = LoadSource::none;
  double wait_us = 0;  ///< an estimate of how long a copy waits
  int pid = 0;         ///< of the other process
};

/// What another process tells of a link; times as in LoadWords.
struct ForeignLoad {
  int slot = 0;
  int pid = 0;
  std::uint64_t direct_until_ns = 0;
  std::uint64_t staged_until_ns = 0;
  std::uint64_t measured_until_ns = 0;
};

/// For how long a route's legs may wait before it is left out.
struct Tolerance {
  std::uint64_t ns = 0;         ///< for copies that no plan knows of
  std::uint64_t staged_ns = 0;  ///< for staged routes of others, which plans share links with
};

/// How long a transfer's staged routes may wait: half of what each of them gains. Staged routes of
/// other processes are planned with the transfer's own, unless they last longer than all of it.
Tolerance tolerance(double predicted_us, double native_us, int staged_routes) noexcept;

/// Links by slot. Links between one GPU and any host memory are one PCIe link, so they have one
/// slot a direction; every other link has its own. Thread-safe but for its making.
class LinkTable {
 public:
  explicit LinkTable(const Node& node);

  [[nodiscard]] int slots() const noexcept { return static_cast<int>(slot_links_.size()); }
  [[nodiscard]] int slot_of(int link) const noexcept {
    return slot_of_[static_cast<std::size_t>(link)];
  }
  /// A link of the slot.
  [[nodiscard]] int link_of(int slot) const noexcept {
    return slot_links_[static_cast<std::size_t>(slot)];
  }
  /// The slot between a GPU and its host memory; -1: there is no such link.
  [[nodiscard]] int host_slot(int gpu, bool to_host) const noexcept;
  /// The slot between two GPUs; -1: there is no such link.
  [[nodiscard]] int gpu_slot(int from, int to) const noexcept;
  /// Whether copies of this process occupied the link within the last `ns`, as predicted.
  [[nodiscard]] bool was_own(int slot, std::uint64_t now_ns, std::uint64_t ns) const noexcept {
    return at(slot).own.left_ns(now_ns > ns ? now_ns - ns : 0) > 0;
  }
  /// For how long copies of this process occupy the link, as predicted.
  [[nodiscard]] std::uint64_t own_left_ns(int slot, std::uint64_t now_ns) const noexcept {
    return at(slot).own.left_ns(now_ns);
  }

  /// For how long copies by other streams than `streams` occupy the link. Where those of `streams`
  /// came between them, a part of these counts as well.
  [[nodiscard]] std::uint64_t others_left_ns(int slot, const std::vector<std::uintptr_t>& streams,
                                             std::uint64_t now_ns) const noexcept;

  /// A copy that is no leg of a staged route: a native one, or a direct route. `stream`: any number
  /// that is the stream's own.
  void add_copy(int slot, std::uint64_t now_ns, std::uint64_t ns, std::uintptr_t stream) noexcept;
  void add_staged(int slot, std::uint64_t now_ns, std::uint64_t ns) noexcept;

  /// A native copy, or a leg of a split transfer, also of its direct route: own traffic, which
  /// delays others of this process, and is no load. Call it before the copies are issued: a thread
  /// can be halted between both.
  void add_own(int slot, std::uint64_t now_ns, std::uint64_t ns, std::uintptr_t stream) noexcept;
  /// Own traffic is being issued from now on, until as many calls of end_issue(): however long its
  /// thread is halted meanwhile, it is on the slot.
  void begin_issue(int slot) noexcept { at(slot).issuing.fetch_add(1, std::memory_order_relaxed); }
  void end_issue(int slot) noexcept { at(slot).issuing.fetch_sub(1, std::memory_order_relaxed); }
  /// All of it was issued only now: it lasts until `ns` from now at least.
  void extend_own(int slot, std::uint64_t now_ns, std::uint64_t ns, std::uintptr_t stream) noexcept;
  [[nodiscard]] const OccupiedUntil& own(int slot) const noexcept { return at(slot).own; }
  /// Whether own traffic of another stream than `stream` occupied the slot at `since_ns` or later,
  /// or any is being issued.
  [[nodiscard]] bool has_others(int slot, std::uintptr_t stream,
                                std::uint64_t since_ns) const noexcept;
  /// Whether such traffic, together with a copy over `slots`, asks more of a port than it carries.
  [[nodiscard]] bool has_full_port(const std::vector<int>& slots, std::uintptr_t stream,
                                   std::uint64_t since_ns) const noexcept;

  /// Copies of one stream that follow each other may be queued when the one before has ended, and
  /// that is later than predicted. An engine may serve such a stream as long as it has copies. So
  /// the slot counts as occupied by them for half of the last one's time longer, this at most.
  static constexpr std::uint64_t kLongestGraceNs = 2'000'000;

  [[nodiscard]] const OccupiedUntil& direct(int slot) const noexcept { return at(slot).direct; }
  /// Until when those copies occupy the slot, with what is added for copies that follow each other.
  [[nodiscard]] std::uint64_t direct_end_ns(int slot) const noexcept {
    return at(slot).direct.until_ns() + at(slot).grace_ns.load(std::memory_order_relaxed);
  }
  [[nodiscard]] const OccupiedUntil& staged(int slot) const noexcept { return at(slot).staged; }
  [[nodiscard]] std::uint64_t busy_ns(int slot) const noexcept {
    return at(slot).busy_ns.load(std::memory_order_relaxed);
  }
  void set_measured(int slot, bool is_loaded) noexcept {
    at(slot).is_measured.store(is_loaded, std::memory_order_relaxed);
  }
  [[nodiscard]] bool is_measured(int slot) const noexcept {
    return at(slot).is_measured.load(std::memory_order_relaxed);
  }

  /// Transfers over the slot lost against native copies although probes find it free: it counts as
  /// loaded for `ns`.
  void hold(int slot, std::uint64_t now_ns, std::uint64_t ns) noexcept;

  /// Whether a leg over the slot would wait for longer than tolerated. Copies that were queued last
  /// on a stream of `streams` do not count: the transfer comes after them anyway.
  [[nodiscard]] LinkState state(int slot, std::uint64_t now_ns, const Tolerance& tolerance,
                                const std::vector<std::uintptr_t>& streams,
                                const std::vector<ForeignLoad>& others) const noexcept;
  /// Forgets everything.
  void clear() noexcept;

 private:
  struct Slot {
    OccupiedUntil direct;
    OccupiedUntil staged;
    OccupiedUntil own;
    OccupiedUntil others;  ///< the part of `own` that is of other streams than own_stream
    OccupiedUntil held;
    std::atomic<int> issuing{0};                ///< own traffic that is being issued
    std::atomic<std::uint64_t> grace_ns{0};     ///< after the end of `direct`
    std::atomic<std::uintptr_t> own_stream{0};  ///< of the last own traffic
    std::atomic<std::uint64_t> busy_ns{0};
    std::atomic<std::uintptr_t> stream{0};  ///< of the last direct copy
    std::atomic<bool> is_measured{false};
  };
  [[nodiscard]] const Slot& at(int slot) const noexcept {
    return table_[static_cast<std::size_t>(slot)];
  }
  Slot& at(int slot) noexcept { return table_[static_cast<std::size_t>(slot)]; }

  std::vector<int> slot_of_;     // by link
  std::vector<int> slot_links_;  // by slot
  std::vector<int> host_slots_;  // by 2 * GPU + (to host ? 0 : 1)
  std::vector<int> gpu_slots_;   // by GPUs * from + to
  struct SharedPort {
    double gbps = 0;
    std::vector<std::pair<int, double>> slots;  ///< that share it, with the rate of their links
  };
  std::vector<SharedPort> ports_;
  std::size_t gpus_ = 0;
  std::vector<Slot> table_;  // by slot
};

}  // namespace polypath
