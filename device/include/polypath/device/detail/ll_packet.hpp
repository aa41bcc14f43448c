// What one access of 16 bytes carries, and how many of them an item takes. C++17: shared by host
// and device.
#pragma once

#include <cstddef>
#include <cstdint>

namespace polypath::device {

/// 12 bytes of data, and which lap of the ring they are of, counted from 1.
struct alignas(16) ll_packet {
  static constexpr unsigned kBytes = 12;
  std::uint32_t data[3];
  std::uint32_t lap;
};

/// Packets of one item: 1, 2, 4 or 8.
constexpr unsigned ll_packet_count(std::size_t item_bytes) {
  if (item_bytes <= ll_packet::kBytes) return 1;
  if (item_bytes <= std::size_t{2} * ll_packet::kBytes) return 2;
  return item_bytes <= std::size_t{4} * ll_packet::kBytes ? 4 : 8;
}
inline constexpr std::size_t kMaxLLItemBytes = 96;  ///< of an item

/// A cell of the layout `ll128`.
inline constexpr std::size_t kLineBytes = 128;
inline constexpr std::size_t kMaxLL128ItemBytes = 120;  ///< of an item in it

}  // namespace polypath::device
