// What kernels over NCCL find of a communicator, in memory of the GPU. C++17; host and device.
#pragma once

#include <cstdint>

#include "polypath/uniconn/device/polypath_view.hpp"

namespace polypath::uniconn::detail {

/// After it NCCL's own, an ncclDevComm.
struct alignas(16) GpucclView {
  std::int32_t rank;
  std::int32_t size;
  /// By which ranks tell each other numbers, each in the word of its number; in a window.
  std::uint64_t* signals;
  /// To an address in any window: the same place on rank r. Windows of all ranks lie in one space
  /// of addresses, rank by rank at equal distances.
  std::uint64_t shift[kMaxDeviceRanks];
};

}  // namespace polypath::uniconn::detail
