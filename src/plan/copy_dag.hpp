// The copies of one transfer as a DAG that stands alone: what a CUDA graph is built from. It holds no
// address, so equal DAGs are one shape, whatever buffers they move.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "plan/plan.hpp"

namespace polypath {

inline constexpr int kNoCopy = -1;

/// The staging ring of one route.
struct RingShape {
  int slots = 0;  ///< 0 on a direct route
  std::uint64_t slot_bytes = 0;

  friend bool operator==(const RingShape&, const RingShape&) = default;
};

/// One copy over one link.
struct DagCopy {
  int route = 0;             ///< index into CopyDag::routes
  int leg = 0;               ///< 0: leaves the source; on a staged route 1: reaches the destination
  std::uint64_t offset = 0;  ///< in the message
  std::uint64_t bytes = 0;
  int slot = 0;  ///< of the route's ring: written by leg 0, read by leg 1
  /// The copies, listed before, that must have completed, or kNoCopy: first the one before it over the
  /// same leg, then the other leg's.
  std::array<int, 2> after{kNoCopy, kNoCopy};

  friend bool operator==(const DagCopy&, const DagCopy&) = default;
};

struct CopyDag {
  Request request;
  std::vector<Route> routes;
  std::vector<RingShape> rings;  ///< by route
  std::vector<DagCopy> copies;
  std::uint64_t hash = 0;  ///< of all the above

  friend bool operator==(const CopyDag&, const CopyDag&) = default;
};

/// Fills in `hash`.
void set_hash(CopyDag& dag) noexcept;

}  // namespace polypath
