// What toDevice() gives kernels over polypath's backend: the one agreement between host and device.
// C++17, plain data in memory of the rank's GPU, which the host writes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "polypath/device/wait_context.hpp"

namespace polypath::uniconn::detail {

/// The most ranks of a communicator: ranks of one node.
inline constexpr int kMaxDeviceRanks = 8;
/// Memories that kernels may send to at a time.
inline constexpr std::uint32_t kMaxDevicePieces = 256;

/// What Memory::Alloc gave, as this rank's GPU addresses it, piece by piece: threads look at pieces
/// side by side, so what they look at first lies side by side.
struct DeviceRegions {
  std::uint64_t begin[kMaxDevicePieces];  ///< of this rank's own; a multiple of 16, on all ranks
  std::uint64_t bytes[kMaxDevicePieces];  ///< 0: nothing is here
  /// By rank, and piece: to a byte of this rank's the same one of that rank, what to add to its
  /// address.
  std::uint64_t shift[kMaxDeviceRanks][kMaxDevicePieces];
};

/// Words in symmetric memory, by which ranks of a communicator meet: `arrived` is raised by the
/// rank of its index; `signals` holds what that rank last sent to this one.
struct DeviceWords {
  std::uint64_t arrived[kMaxDeviceRanks];
  std::uint64_t signals[kMaxDeviceRanks];
};

struct PolypathView {
  device::wait_context wait_ctx;
  std::int32_t rank;
  std::int32_t size;
  DeviceWords* words[kMaxDeviceRanks];  ///< of each rank
  /// So many of the pieces may be in use; it only rises.
  std::uint64_t count;
  DeviceRegions pieces;
};

}  // namespace polypath::uniconn::detail
