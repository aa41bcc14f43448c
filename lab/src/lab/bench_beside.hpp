// A benchmark while other traffic uses the links: native copies and polypath, on the idle node and
// on the loaded one, in turns.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "lab/block_set.hpp"
#include "lab/file_set.hpp"
#include "lab/own_traffic.hpp"
#include "lab/spread_set.hpp"

namespace polypath {

struct BesideOptions {
  int warmup = 1;       ///< untimed pairs on the idle node, before each round
  int iterations = 40;  ///< timed pairs of each phase
  int rounds = 1;       ///< each measures the idle node, then the loaded one, then the recovery
  /// Starts (true) or ends (false) the traffic; returns when it flows, or when none is queued.
  std::function<void(bool)> traffic;
  OwnTrafficOptions own;  ///< traffic of this process; without copies: none
};

/// Runs it on buffers and streams of its own, and compares every byte of both ways before the
/// traffic, next to it and after it. Polypath's transfers follow the planner as a program's do. The
/// result is what polypath_bench_beside() gives. Throws Error when bytes differ, and what
/// options.traffic throws.
nlohmann::json bench_beside(Context& context, const std::vector<Request>& requests,
                            const BesideOptions& options);
/// bench_beside() for a batch of blocks.
nlohmann::json bench_blocks_beside(Context& context, const BlocksRequest& request,
                                   const BesideOptions& options);
/// bench_beside() for a read of a file.
nlohmann::json bench_file_beside(Context& context, const FileRequest& request,
                                 const BesideOptions& options);

/// bench_beside() for a spread; "group_bytes" are those that each GPU receives.
nlohmann::json bench_spread_beside(Context& context, const SpreadRequest& request,
                                   const BesideOptions& options);

}  // namespace polypath
