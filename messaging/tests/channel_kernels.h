// What the kernels of channel_kernels.cu are told, on the host and on the device.
#pragma once

#include <cstdint>

#include "polypath/device/channel_view.hpp"
#include "queue_kernels.h"

namespace polypath::test {

enum class ChannelCall : std::uint32_t {
  send,
  receive,
  wait,
  test,
  blocking_send,
  blocking_receive,
  poll  ///< tests until it is not under way, a thousand times at most
};

struct ChannelOp {
  ChannelCall call;
  std::uint32_t peer;
  std::uint32_t tag;
  std::uint32_t request;  ///< its number
  std::uint64_t bytes;
  unsigned char* data;
};

/// How a request ended; `status` is poison until then.
struct ChannelResult {
  std::uint32_t status;
  std::uint32_t tag;
  std::uint32_t source;
  std::uint32_t bytes;
  std::uint32_t sum;  ///< of the bytes as the receiving group found them: sum_of()
};

/// What the byte at a place adds to a sum.
inline constexpr std::uint32_t kSumFactor = 0x9E3779B1;

inline constexpr std::uint32_t kMaxRequests = 64;

/// Block b uses context b; its calls `first` to `last` are made by this launch.
struct ChannelRow {
  device::channel_view view;
  Members members;       ///< a warp (and others of the block do nothing), or the block
  std::uint32_t stride;  ///< calls, and results, of a context
  std::uint32_t first;
  std::uint32_t last;
  const ChannelOp* calls;
  device::request* requests;  ///< kMaxRequests of each context, between launches
  ChannelResult* results;
};

}  // namespace polypath::test
