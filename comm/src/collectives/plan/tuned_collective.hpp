// What a tuner found for collectives: the fastest algorithm for each operation, set of GPUs and
// size, with what was measured. tuned_plan.hpp makes plans of it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace polypath {

/// How a collective is carried out. Names as `polypath plan` prints them.
struct CollectiveVariant {
  std::string algorithm;          ///< "cells", "flat", "hierarchical", ...
  int stages = 0;                 ///< of kernels: 1 or 2
  int blocks = 0;                 ///< of a kernel
  std::uint64_t tile_bytes = 0;   ///< of channels (flat); 0: as planned
  int lag = 0;                    ///< of channels, in steps; 0: as planned
  int lanes = 0;                  ///< of hierarchical
  std::uint64_t chunk_bytes = 0;  ///< of what runs by copies

  friend bool operator==(const CollectiveVariant&, const CollectiveVariant&) = default;
};
/// "flat, 2 stages, 64 blocks, tiles of 32768 bytes, lag 3"; "hierarchical, 2 lanes, chunks of
/// 1048576 bytes".
std::string to_string(const CollectiveVariant& way);

struct TunedCollective {
  std::string op = {};      ///< "allreduce", ...
  std::string ranks = {};   ///< collective_class()
  std::uint64_t bytes = 0;  ///< of a rank's larger buffer
  CollectiveVariant way = {};
  double planned_us = 0;  ///< a call as the cost model plans it, of the slowest rank, ...
  double us = 0;          ///< ... and so
  int tried = 0;          ///< ways that were measured, the planned one included
  bool edited = false;    ///< changed by hand in the profile: no search replaces it

  friend bool operator==(const TunedCollective&, const TunedCollective&) = default;
};

/// The entry of the nearest size for this operation and these ranks, of those whose sizes are from
/// 0.7 to 1.42 times as large. Null: none.
const TunedCollective* find_collective(std::span<const TunedCollective> all, std::string_view op,
                                       std::string_view ranks, std::uint64_t bytes);

/// A number of what plans follow: operation, ranks, size and way. A profile tells edited entries by
/// it.
std::uint32_t digest(const TunedCollective& entry) noexcept;

}  // namespace polypath
