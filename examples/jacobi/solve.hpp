// The iterations, and the time that they take.
#pragma once

#include <cstdint>
#include <vector>

#include "compute.hpp"
#include "ranks.hpp"

namespace jacobi {

/// What all ranks found together.
struct Solution {
  std::vector<float> residuals;  ///< the largest change of an element, by iteration
  std::uint64_t digest = 0;      ///< of the whole grid after the last one
  // Means over the timed iterations, us:
  double iteration_us = 0;      ///< of the slowest rank
  double compute_us = 0;        ///< mean over ranks
  double communication_us = 0;  ///< mean over ranks; waiting for a neighbour is part of it
};

/// Runs `iterations` iterations; the first `warmup`, fewer than all, are not timed. Collective.
Solution solve(Ranks& ranks, const Shape& shape, Field& field, Compute& compute, int iterations,
               int warmup);

}  // namespace jacobi
