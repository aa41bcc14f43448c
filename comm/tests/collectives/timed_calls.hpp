// Calls that are timed in virtual time, on ranks that are threads of a simulated node. Every byte is
// compared.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "call_rows.hpp"
#include "comm/communicator.hpp"
#include "driver/check.hpp"
#include "driver/resources.hpp"
#include "support/driver_extras.hpp"

namespace polypath::test {

/// One rank's calls, all alike, one after another.
class TimedCalls {
 public:
  TimedCalls(Communicator& comm, Collectives& collectives, PlannedCall call)
      : comm_(comm),
        collectives_(collectives),
        stream_(comm.driver(), comm.context()),
        begin_(comm.driver(), comm.context()),
        end_(comm.driver(), comm.context()),
        issuer_(driver_function<void(int)>(comm.driver(), "polypath_sim_set_issuer")),
        clock_us_(driver_function<double()>(comm.driver(), "polypath_sim_clock_us")) {
    row_.push_back(std::move(call));
    memory_.emplace(comm.driver(), row_, comm.rank());
  }

  /// Verified; how long `row` calls without a pause took from when the last rank began until the
  /// last one's end, in virtual us: the same on all ranks.
  double time(AlgorithmOverride choice = AlgorithmOverride::planned, int row = 1) {
    const CudaDriver& driver = comm_.driver();
    memory_->reset(row_);
    comm_.exchange({}, {});
    issuer_(1);
    comm_.exchange({}, {});
    if (before_row) before_row();
    const std::uint64_t count_before = counter ? counter() : 0;
    const double clock_before_us = clock_us_();
    POLYPATH_CHECK(driver, event_record(begin_.get(), stream_.get()));
    for (int i = 0; i < row; ++i) collectives_.run(memory_->call(row_, 0), stream_.get(), choice);
    POLYPATH_CHECK(driver, event_record(end_.get(), stream_.get()));
    issuer_(0);
    POLYPATH_CHECK(driver, stream_synchronize(stream_.get()));
    if (counter)
      rate_ = static_cast<double>(counter() - count_before) / (clock_us_() - clock_before_us);
    comm_.check();
    memory_->expect_done(row_);
    const std::array<double, 2> local{clock_before_us,
                                      clock_before_us + elapsed_us(driver, begin_, end_)};
    std::vector<std::array<double, 2>> all(static_cast<std::size_t>(comm_.size()));
    comm_.exchange(std::as_bytes(std::span(local)), std::as_writable_bytes(std::span(all)));
    std::array<double, 2> last = local;
    for (const auto& each : all)
      for (std::size_t i = 0; i < last.size(); ++i) last[i] = std::max(last[i], each[i]);
    return last[1] - last[0];
  }
  std::vector<double> times(int calls, AlgorithmOverride choice = AlgorithmOverride::planned) {
    std::vector<double> all;
    for (int i = 0; i < calls; ++i) all.push_back(time(choice));
    return all;
  }
  /// Called on this rank right before a row of calls.
  std::function<void()> before_row;
  /// Asked on this rank at the beginning of a row of calls and at its end.
  std::function<std::uint64_t()> counter;
  /// How fast the counter grew during the latest row, a virtual us.
  [[nodiscard]] double rate() const noexcept { return rate_; }

 private:
  Communicator& comm_;
  Collectives& collectives_;
  Stream stream_;
  Event begin_;
  Event end_;
  void (*issuer_)(int);
  double (*clock_us_)();
  double rate_ = 0;
  std::vector<PlannedCall> row_;
  std::optional<CallRow> memory_;
};

}  // namespace polypath::test
