// Devices that run on worker threads, in real time, for programs of several processes. Operations
// run as soon as what they wait for has completed, in any order otherwise; a seed delays each of
// them by a random time, so that other orders come about.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "devices.hpp"
#include "functional_traffic.hpp"

namespace polypath::sim {

/// Lives until the process ends: its threads are never joined.
class ThreadedDevices : public Devices {
 public:
  /// `mutex`: the driver's lock. `seed`: of the delays; 0: none. `machine`, `node`: as
  /// FunctionalTraffic has them. `has_call_times`: calls that take long do so.
  /// `greedy_engines`: links whose engine serves a stream as long as that has work which can run.
  ThreadedDevices(DriverMutex& mutex, std::uint64_t seed, const std::string& machine,
                  const std::string& node, bool has_call_times, std::set<int> greedy_engines = {})
      : mutex_(mutex),
        seed_(seed),
        has_call_times_(has_call_times),
        greedy_engines_(std::move(greedy_engines)),
        traffic_(machine, node),
        sees_traffic_(!machine.empty()) {}

  [[nodiscard]] double clock_us() const override;
  void spend(double) override {}  // real time passes by itself
  void take_long(double us) override {
    if (has_call_times_) pass(us);
  }
  void pass(double us) override;
  void set_issuing(int /*number*/) override {}
  void take_turn() override {}
  int start_traffic(TrafficFlow flow, bool from_file) override;
  void stop_traffic(int id) override { traffic_.stop(id); }
  std::uint64_t traffic_blocks(int id) override { return traffic_.blocks(id); }
  int traffic_queued(int id) override { return traffic_.queued(id); }
  OperationPtr issue(Operation operation) override;
  void catch_up() override {}
  void wait_until(const std::function<bool()>& holds) override;
  void wait(const OperationPtr& operation) override;

 private:
  using Clock = std::chrono::steady_clock;

  struct Ready {
    Clock::time_point due;
    OperationPtr operation;
  };
  struct Earlier {
    bool operator()(const Ready& a, const Ready& b) const {
      return a.due != b.due ? a.due < b.due : a.operation->id < b.operation->id;
    }
  };

  /// A worker that sleeps until it is woken, or until a time.
  struct Resting {
    SleeperPtr sleeper;
    std::chrono::steady_clock::time_point until;
  };

  /// A thread of the program that waits; made and destroyed under the lock.
  struct Waiter {
    Waiter(std::vector<const Waiter*>& all, const std::function<bool()>& what)
        : waiters(all), holds(what) {
      waiters.push_back(this);
    }
    ~Waiter() { std::erase(waiters, this); }
    Waiter(const Waiter&) = delete;
    Waiter& operator=(const Waiter&) = delete;

    std::vector<const Waiter*>& waiters;
    const std::function<bool()>& holds;
    const SleeperPtr sleeper = std::make_shared<Sleeper>();
  };

  void start_workers();
  [[noreturn]] void work();
  /// `self`: of the calling worker.
  void rest(DriverMutex::ForWorkers& lock, const SleeperPtr& self);
  /// One of those that rest, if there is one.
  void wake_worker();
  /// Whether a resting worker will take the next operation that is ready when its time has come.
  [[nodiscard]] bool is_awaited() const;
  /// Wakes the program's threads whose wait is over.
  void wake_waiters();
  void poll();
  void make_ready(const OperationPtr& operation);
  /// Whether the greedy engines of the copy serve its stream, or take it up now.
  bool is_served(const Operation& copy);
  /// The operation has completed, or waits again.
  void leaves_run(const Operation& operation);
  void complete(const OperationPtr& operation);
  [[nodiscard]] Clock::duration delay(std::uint64_t id) const;

  DriverMutex& mutex_;
  const std::uint64_t seed_;
  const bool has_call_times_;
  const std::set<int> greedy_engines_;           // resources of their links
  std::map<int, std::shared_ptr<int>> served_;   // by engine: Operation::queue of a stream
  std::map<std::shared_ptr<int>, int> can_run_;  // operations of the stream that are ready or run
  const Clock::time_point begin_ = Clock::now();
  FunctionalTraffic traffic_;
  bool sees_traffic_;  // there may be some
  bool has_workers_ = false;
  std::vector<Resting> resting_;  // the polling worker is the first
  std::vector<const Waiter*> waiters_;
  std::set<Ready, Earlier> ready_;
  std::set<OperationPtr> waiting_;  // for a value in memory
  bool is_polled_ = false;          // a worker looks after them
  Clock::time_point last_change_;   // of waiting_, or in what has completed
  std::size_t open_ = 0;            // operations that have not completed
  std::uint64_t next_id_ = 1;
};

}  // namespace polypath::sim
