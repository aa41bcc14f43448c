// How the same bytes get from one memory to several GPUs: each of some GPUs, the feeders, fetches a
// part of them over its own link from the source, right to its place in the GPU's own destination,
// and sends it on from there to all other destinations. So each link of the source carries a part
// once. Pure.
//
//   make_spread_trees()  which GPUs may feed, and at which rates: once for each set of ends; slow
//   plan_spread()        parts and chunks for a size; fast
//   make_schedule()      the copies
//
// A tree is a link from the source to a feeder, and the links from there to all others. What trees
// get when all carry data is the max-min fair rate (plan/flow.hpp) of routes with these legs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/plan.hpp"
#include "plan/schedule.hpp"

namespace polypath {

/// No spread has more destinations.
inline constexpr std::size_t kMaxSpreadGpus = 64;
/// Chunks of a part: what a stream takes without waiting (exec/route_resources.cpp), in steps of
/// two calls a chunk.
inline constexpr int kMaxSpreadChunks = 384;

/// The way of one part: over `feed` to GPU `gpu`, and over `forward` to all others.
struct SpreadTree {
  int gpu = 0;
  int feed = 0;              ///< index into Node::links
  std::vector<int> forward;  ///< indices into Node::links, in the order of the other GPUs
  double gbps = 0;           ///< of this tree while all carry data
  double forward_gbps = 0;   ///< of each forward link while all of the tree carry a chunk
};

struct SpreadTrees {
  MemoryId src;
  std::vector<int> gpus;  ///< of the destinations, none twice, without the source's own
  std::vector<SpreadTree> trees;
  double native_gbps = 0;  ///< of the slowest of as many copies at once; 0: some GPU has no link
  double limit_gbps = 0;   ///< maximum flow of the trees
};

/// The tree's links as the legs of one route: what it puts on links, for those that count load.
Route legs_of(const SpreadTree& tree);

/// `without`: GPUs that may not feed, as bits by number.
SpreadTrees make_spread_trees(const Node& node, MemoryId src, const std::vector<int>& gpus,
                              std::uint64_t without);

/// What one tree carries.
struct SpreadShare {
  std::size_t tree = 0;  ///< index into SpreadTrees::trees
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint64_t chunk_bytes = 0;  ///< of all chunks but the last
};

struct SpreadPlan {
  std::uint64_t bytes = 0;
  std::vector<SpreadShare> shares;  ///< cover the bytes once; empty: as many native copies
  int chunks = 0;                   ///< of each share, at most
  double predicted_us = 0;
  double native_us = 0;
  std::string reason;  ///< for people; empty unless plan_spread() was told to explain

  [[nodiscard]] bool native() const noexcept { return shares.empty(); }
};

/// Shares that end at the same time, in the number of chunks that is predicted to end first.
/// Native where that gains less than 2 %, or than a third of what a staged route costs beyond its
/// bytes. `chunk_bytes`: 0: the best.
SpreadPlan plan_spread(const Node& node, const SpreadTrees& trees, std::uint64_t bytes,
                       std::uint64_t chunk_bytes, bool explains = false);

/// The copies of a plan that is not native, with a queue for each leg: those of one share after
/// those of another, its feed first. A place of the output belongs to the GPU `owner`. All links of
/// the source start a chunk before any GPU sends one on.
Schedule make_schedule(const SpreadTrees& trees, const SpreadPlan& plan);

}  // namespace polypath
