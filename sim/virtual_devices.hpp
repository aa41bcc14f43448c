// Devices in virtual time: nothing happens but when somebody asks, and always in the same way.
#pragma once

#include "devices.hpp"
#include "timeline.hpp"

namespace polypath::sim {

class VirtualDevices : public Devices {
 public:
  /// `mutex`: the driver's lock.
  VirtualDevices(DriverMutex& mutex, const Costs& costs, std::vector<double> capacities_gbps)
      : mutex_(mutex), timeline_(costs, std::move(capacities_gbps)) {}

  [[nodiscard]] double clock_us() const override { return clock_us_; }
  void spend(double us) override { clock_us_ += us; }
  void pass(double us) override { spend(us); }
  OperationPtr issue(Operation operation) override {
    return timeline_.issue(std::move(operation), clock_us_);
  }
  void catch_up() override;
  /// Releases the lock only while somebody outside must first satisfy an operation that waits for a
  /// value.
  void wait_until(const std::function<bool()>& holds) override;
  void wait(const OperationPtr& operation) override;

 private:
  DriverMutex& mutex_;
  Timeline timeline_;
  double clock_us_ = 0;
};

}  // namespace polypath::sim
