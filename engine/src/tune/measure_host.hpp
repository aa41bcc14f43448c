// How fast the CPU copies pageable memory: what plans of pageable memory go by
// (plan/pageable_plan.hpp).
#pragma once

#include "driver/cuda_driver.hpp"
#include "topology/node.hpp"

namespace polypath {

/// The node's costs, with the rates of pageable memory measured: the driver's own copies from and
/// to GPU 0, and those of a thread and of `threads` by way of memory that stays in the cache.
/// Takes 256 MiB of host memory and about a second of all these CPUs. Throws DriverError,
/// std::bad_alloc.
Costs measure_host_copies(const CudaDriver& driver, const Node& node, int threads);

/// The two rates of host_copy_gbps() with which a thread reaches `single` GB/s, and `threads`
/// threads `all`.
struct HostRates {
  double thread_gbps = 0;
  double host_gbps = 0;
};
HostRates fit_host_rates(double single, double all, int threads) noexcept;

}  // namespace polypath
