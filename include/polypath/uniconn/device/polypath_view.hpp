// What toDevice() gives kernels over polypath's backend: the one agreement between host and device.
// C++17, plain data in memory of the rank's GPU, which the host writes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "polypath/device/patience.hpp"

namespace polypath::uniconn::detail {

/// Of a communicator: ranks of one node.
inline constexpr int kMostDeviceRanks = 8;
/// Memories that kernels may send to at a time.
inline constexpr std::uint32_t kMostDevicePieces = 256;

/// What Memory::Alloc gave, as this rank's GPU addresses it.
struct DevicePiece {
  std::uint64_t begin;  ///< of this rank's own
  std::uint64_t bytes;  ///< 0: nothing is here
  /// To a byte of this rank's the same one of rank r: what to add to its address.
  std::uint64_t shift[kMostDeviceRanks];
};

/// Words in symmetric memory, by which ranks of a communicator meet: `arrived` is raised by the
/// rank of its index; `told` is what that rank last told this one.
struct DeviceWords {
  std::uint64_t arrived[kMostDeviceRanks];
  std::uint64_t told[kMostDeviceRanks];
};

struct PolypathView {
  device::Patience patience;
  std::int32_t rank;
  std::int32_t size;
  DeviceWords* words[kMostDeviceRanks];  ///< of each rank
  /// So many of the pieces may be in use; it only rises.
  std::uint64_t count;
  DevicePiece pieces[kMostDevicePieces];
};

}  // namespace polypath::uniconn::detail
