// What the kernels of collectives_bench.cu are told, on the host and on the device.
#pragma once

#include <cstdint>

#include "polypath/device/collectives_view.hpp"

namespace messaging_bench {

/// `rounds` of one collective, after one another.
struct CollectiveRun {
  polypath::device::collectives_view view;
  polypath::device::symmetric<float> send;
  polypath::device::symmetric<float> recv;
  std::uint64_t count;  ///< elements to combine; 0: barriers
  std::uint32_t rounds;
};

}  // namespace messaging_bench
