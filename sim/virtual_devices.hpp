// Devices in virtual time: nothing happens but when somebody asks, and always in the same way.
#pragma once

#include <chrono>

#include "devices.hpp"
#include "timeline.hpp"

namespace polypath::sim {

class VirtualDevices : public Devices {
 public:
  /// `mutex`: the driver's lock.
  /// `patience`: after so long, kernels that nothing has come for are ended.
  VirtualDevices(DriverMutex& mutex, const Costs& costs, std::vector<double> capacities_gbps,
                 std::chrono::seconds patience)
      : mutex_(mutex), timeline_(costs, std::move(capacities_gbps)), patience_(patience) {}

  [[nodiscard]] Timeline& timeline() noexcept { return timeline_; }

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
  std::chrono::seconds patience_;
  double clock_us_ = 0;
};

}  // namespace polypath::sim
