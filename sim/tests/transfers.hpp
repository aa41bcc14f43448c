// The transfers whose measured rates docs/simulated-node.md lists, by raw driver calls. All return
// GB/s; sizes in bytes, shares in percent.
#pragma once

#include <cstddef>

#include "rig.hpp"

namespace polypath::sim::test {

/// One copy from GPU 0 to GPU 1, on one stream or in equal parts on several.
double direct(Rig& rig, std::size_t bytes);
double split(Rig& rig, std::size_t bytes, int streams);

/// One direct copy each, all at once; the sum.
double both_directions(Rig& rig, std::size_t bytes);
double ring(Rig& rig, std::size_t bytes);
double fan_out(Rig& rig, std::size_t bytes);
double fan_in(Rig& rig, std::size_t bytes);

enum class Direction { to_host, from_host, both };
/// Copies between each of the first `gpus` GPUs and host memory, all at once; the sum.
double host_copies(Rig& rig, Direction direction, int gpus, std::size_t bytes);

/// GPU 0 to GPU 1 in chunks by the host, and by the host or by GPU 2 next to a direct copy.
double by_host(Rig& rig, std::size_t bytes, std::size_t chunk);
double direct_and_host(Rig& rig, std::size_t bytes, int percent, std::size_t chunk);
double direct_and_gpu(Rig& rig, std::size_t bytes, int percent, std::size_t chunk);
/// Both directions at once, each with a share by the host; the sum. A ring of `slots` chunks.
double both_directions_and_host(Rig& rig, std::size_t bytes, int percent, std::size_t chunk,
                                int slots);

/// Between host memory and GPU 0, chunks dealt out to the host links of `gpus` GPUs.
double into_gpu_over(Rig& rig, int gpus, std::size_t bytes, std::size_t chunk);
double out_of_gpu_over(Rig& rig, int gpus, std::size_t bytes, std::size_t chunk);

/// CPU time of one asynchronous copy call, microseconds.
double issue_us(Rig& rig);

}  // namespace polypath::sim::test
