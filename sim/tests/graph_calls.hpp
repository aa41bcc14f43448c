// Graphs of copies of which only the time counts, by raw driver calls.
#pragma once

#include "rig.hpp"

namespace polypath::sim::test {

/// CPU time of each call, microseconds.
struct GraphCalls {
  double create_us = 0;
  double add_us = 0;  ///< all nodes
  double instantiate_us = 0;
  double set_us = 0;  ///< all nodes
  double launch_us = 0;
};

/// For a graph of `nodes` copies in pairs, the second of a pair after the first.
GraphCalls graph_calls(Rig& rig, int nodes);

/// Virtual time of a launch on GPU 0: a direct copy to GPU 1 next to pairs of copies by host
/// memory.
double graph_us(Rig& rig, int nodes);

}  // namespace polypath::sim::test
