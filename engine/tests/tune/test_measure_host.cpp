// The rates of copy threads: what is fitted to two measurements.
#include <gtest/gtest.h>

#include "plan/pageable_plan.hpp"
#include "tune/measure_host.hpp"

namespace polypath {
namespace {

TEST(HostRates, Fit_ReproducesBothMeasurements) {
  for (const auto& [single, all, threads] :
       {std::tuple{10.8, 102.0, 16}, {16.0, 106.0, 8}, {9.0, 17.5, 2}}) {
    const HostRates rates = fit_host_rates(single, all, threads);
    Costs costs;
    costs.thread_to_gpu_gbps = rates.thread_gbps;
    costs.host_to_gpu_gbps = rates.host_gbps;
    EXPECT_NEAR(host_copy_gbps(costs, ThreadWork::to_gpu, 1), single, 0.01 * single);
    EXPECT_NEAR(host_copy_gbps(costs, ThreadWork::to_gpu, threads), all, 0.01 * all);
  }
}

TEST(HostRates, OddMeasurements_GivePositiveRates) {
  for (const auto& [single, all, threads] :
       {std::tuple{10.0, 200.0, 16}, {10.0, 5.0, 8}, {10.0, 10.0, 4}, {12.0, 12.0, 1}}) {
    const HostRates rates = fit_host_rates(single, all, threads);
    EXPECT_GT(rates.thread_gbps, 0);
    EXPECT_GT(rates.host_gbps, 0);
  }
}

}  // namespace
}  // namespace polypath
