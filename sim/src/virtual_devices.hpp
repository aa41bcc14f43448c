// Devices in virtual time: events happen only in calls, and always in the same way.
//
// Each thread of the program has a clock of its own, as each has a core: what calls cost one thread
// costs the others nothing. A thread begins where the latest of the others is, and is never after
// what the devices were seen to have come to.
#pragma once

#include <chrono>
#include <list>
#include <thread>

#include "devices.hpp"
#include "timeline.hpp"

namespace polypath::sim {

class VirtualDevices : public Devices {
 public:
  /// `mutex`: the driver's lock.
  /// `timeout`: kernels that have waited for this time without an event are ended.
  VirtualDevices(DriverMutex& mutex, const Costs& costs, const std::vector<Capacity>& capacities,
                 std::chrono::seconds timeout)
      : mutex_(mutex), timeline_(costs, capacities), timeout_(timeout) {}

  [[nodiscard]] Timeline& timeline() noexcept { return timeline_; }

  [[nodiscard]] double clock_us() const override { return own_clock_us(); }
  void spend(double us) override { set_clock(own_clock_us() + us); }
  void take_long(double us) override { spend(us); }
  void pass(double us) override { spend(us); }
  void set_issuing(int number) override;
  void take_turn() override;
  int start_traffic(TrafficFlow flow, bool from_file) override;
  void stop_traffic(int id) override;
  std::uint64_t traffic_blocks(int id) override;
  int traffic_queued(int id) override;
  OperationPtr issue(Operation operation) override {
    return timeline_.issue(std::move(operation), own_clock_us());
  }
  void catch_up() override;
  /// Releases the lock only while an outside write must first satisfy an operation that waits for a
  /// value.
  void wait_until(const std::function<bool()>& holds) override;
  void wait(const OperationPtr& operation) override;

 private:
  struct Clock {
    const VirtualDevices* devices = nullptr;
    double us = 0;
  };
  /// A thread that issues work.
  struct Issuer {
    std::thread::id thread;
    int number = 0;
    double us = 0;           ///< its clock
    bool has_begun = false;  ///< to issue
    bool counts = true;      ///< false: nothing came of it for too long
    /// What it waits for in a call; it issues nothing meanwhile.
    const std::function<bool()>* holds = nullptr;
  };
  using Issuers = std::list<Issuer>;

  static Clock& clock_of_thread();
  [[nodiscard]] Issuer* own_issuer();
  /// Whether no issuer has the turn, and the next is that of `own`.
  [[nodiscard]] bool is_next(const Issuer& own);
  /// Releases the lock until it is the turn of `own`, the calling thread's.
  void wait_for_turn(Issuer& own);
  /// The calling thread's clock.
  [[nodiscard]] double own_clock_us() const;
  void set_clock(double us);
  /// When it may call next; kNever while it waits.
  [[nodiscard]] double next_call_us(const Issuer& issuer) const;
  /// How far devices may go: to where the first of the other threads is that issue work.
  [[nodiscard]] double horizon_us() const;

  DriverMutex& mutex_;
  Timeline timeline_;
  std::chrono::seconds timeout_;
  double latest_us_ = 0;  // of all threads' clocks
  Issuers issuers_;
  const Issuer* whose_turn_ = nullptr;  // one of them
};

}  // namespace polypath::sim
