// How long a share takes on its route, from the Costs of the node and the rate that the flow gives
// the route.
//
// A direct route is one copy:            T(n) = start + halts + n / rate
// A staged route with chunks of b bytes: T(n) = fixed + b / fill +
//                            max(halts + n / rate + gap * n / b, round * (n / b - 1) + b / rate)
//   n / rate      the narrower leg, busy from the first byte to the last
//   b / fill      the other leg's one chunk that nothing overlaps: the pipeline with c chunks of
//                 equal legs takes (c + 1) chunk times (DESIGN: decision 3; the papers' 2-D
//                 pipelining)
//   gap * n / b   the time between two copies of a leg, once a chunk
//   round * ...   from the issue of the first chunk to that of the last, where the CPU takes
//                 longer than the links: it issues the chunks of all staged routes of the group in
//                 turn, in `round` each
//   fixed         fork, both legs' start, the hand-over between them, join
//   halts         a chunk that begins halts what else is on its links, and on filled ports, for
//                 copy_handover_us: each route waits for the chunks of all others there
// The best chunk is b = sqrt(n * gap * fill), but not so small that the CPU sets the pace.
#pragma once

#include <cstdint>

#include "plan/route_sets.hpp"

namespace polypath {

/// Bytes of one staging ring, and how many there may be, by the memory that they lie in.
struct RingLimits {
  std::uint64_t gpu = 21u << 20;
  std::uint64_t host = 16u << 20;
  int max_in_gpu = 3;
  int max_in_host = 4;

  [[nodiscard]] std::uint64_t bytes_of(const Route& route) const noexcept {
    return route.kind == RouteKind::via_host ? host : gpu;
  }
  [[nodiscard]] int max_in(MemoryId memory) const noexcept {
    return memory.is_host() ? max_in_host : max_in_gpu;
  }
};

/// What the caller or the engine fixes.
struct ChunkLimits {
  std::uint64_t chunk_bytes = 0;  ///< 0: the best
  int chunks = 0;                 ///< 0: the best
  std::uint64_t min_chunk_bytes = 256u << 10;
  RingLimits rings;
};

/// The model of one route; bytes and microseconds.
struct RouteCost {
  bool staged = false;
  double fixed_us = 0;
  double bytes_per_us = 0;       ///< the flow's rate, less the caution for host memory
  double full_bytes_per_us = 0;  ///< the flow's rate
  double fill_bytes_per_us = 0;  ///< the wider leg
  double gap_us = 0;
  double round_us = 0;   ///< between the issue of two of its chunks
  double halts_us = 0;   ///< for which chunks of others halt it, all together
  bool runs_on = false;  ///< after another transfer's chunks: nothing starts, and nothing is filled
  std::uint64_t max_chunk_bytes = 0;

  /// Best chunk for a share of `bytes`, within the limits.
  [[nodiscard]] double chunk_bytes(double bytes, const ChunkLimits& limits) const noexcept;
  /// A time that rises linearly with the share.
  struct Line {
    double offset_us = 0;
    double us_a_byte = 0;
  };
  /// How the time of a share rises, near `bytes`, while the chunks are held at `chunk` bytes.
  [[nodiscard]] Line line(double bytes, double chunk) const noexcept;
  /// Time of a share of `bytes` in chunks of `chunk`.
  [[nodiscard]] double time_us(double bytes, double chunk) const noexcept;

 private:
  /// The least chunk with which a share of `bytes` waits for its links and not for the CPU.
  [[nodiscard]] double issued_in_time(double bytes) const noexcept;
};

/// Costs::staged_fixed_us, or what stands for it.
double staged_fixed_us(const Costs& costs) noexcept;

RouteCost cost_of(const Node& node, const RatedRoute& route, const RingLimits& rings);

}  // namespace polypath
