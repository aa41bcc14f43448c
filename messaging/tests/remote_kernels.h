// What the kernels of remote_kernels.cu are told, on the host and on the device.
#pragma once

#include "queue_kernels.h"

namespace polypath::test {

/// What one side of a queue between GPUs does.
struct RemoteRow {
  QueueRow queue;
  bool is_line;
};
struct RemotePairRow {
  PairRow pair;
  bool is_line;
};

/// One group pops from all of `rings`, until each is closed.
struct RingsRow {
  static constexpr unsigned kMaxSources = 3;
  device::queue_view rings[kMaxSources];
  std::uint32_t count;
  PoppedItem* popped;  ///< `room` for each ring
  std::uint32_t room;
};

}  // namespace polypath::test
