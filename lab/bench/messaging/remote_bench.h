// What the kernels of remote_bench.cu are told, on the host and on the device.
#pragma once

#include "queue_bench.h"

namespace messaging_bench {

/// One side of trips between two GPUs, or with the CPU.
struct SideOfTrips {
  polypath::device::queue_view queue_to;
  polypath::device::queue_view queue_from;
  polypath::device::spsc_view pair_to;
  polypath::device::spsc_view pair_from;
  std::uint32_t begins;
  std::uint32_t rounds;
  Tally* tally;
};

/// One block: the GPU's side of a pair with the CPU.
struct HostPairRun {
  polypath::device::spsc_view view;
  std::uint64_t first;  ///< id
  std::uint32_t calls;
  Tally* tally;
};

}  // namespace messaging_bench
