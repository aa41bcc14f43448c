// Rows of calls from kernels (device_kernels.h): what each rank has before, what it does, and what
// it must have after each call and in the end, by a text of its own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "device_kernels.h"

namespace polypath::test {

using DeviceRandom = std::mt19937_64;
using DeviceBytes = std::vector<std::byte>;

/// Memories that all ranks have: words for signals, and two for data.
inline constexpr std::size_t kDevicePieces = 3;

struct DeviceRegion {
  std::size_t piece = 0;
  std::size_t at = 0;  ///< bytes
};

/// A call on one rank.
struct DeviceCallCase {
  DeviceCall call{};  ///< without addresses
  DeviceRegion send, recv, signal, fill, look;
  std::vector<std::size_t> counts, displs, rdispls;
  DeviceBytes in;        ///< for `fill`
  DeviceBytes expected;  ///< of `look`, after the call
};

struct DeviceRowOptions {
  int ranks = 4;
  std::size_t rounds = 8;
  std::uint32_t blocks = 2;
  std::size_t max_bytes = 16 * 1024;  ///< of a rank's part
  bool has_all_sums = true;
  bool sums_in_any_order = false;  ///< of floats that are small integers: the same bits
  bool tells = true;               ///< by stores to the other ranks' own addresses
};

struct DeviceRowCase {
  int ranks = 0;
  std::uint32_t blocks = 1;
  std::vector<std::vector<DeviceCallCase>> calls;  ///< by rank
  /// By rank and piece: before, and after it all.
  std::vector<std::array<DeviceBytes, kDevicePieces>> before, after;

  [[nodiscard]] std::string text(std::size_t call) const;
};

DeviceRowCase make_device_row(DeviceRandom& random, const DeviceRowOptions& options);

/// What a rank's kernel finds in memory of its own: calls, lists, data that come and that go; as
/// long at any address. `own`: its pieces; `remote_signals`: the words for signals of each
/// rank.
DeviceBytes pack(const DeviceRowCase& row, int rank, std::uint64_t begin,
                 const std::array<std::uint64_t, kDevicePieces>& own,
                 const std::vector<std::uint64_t>& remote_signals);

/// Empty, or the first byte that is wrong.
std::string wrong_bytes(const DeviceRowCase& row, int rank, const DeviceBytes& packed,
                        const std::array<DeviceBytes, kDevicePieces>& pieces);

}  // namespace polypath::test
