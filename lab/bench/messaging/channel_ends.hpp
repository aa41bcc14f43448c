// Two ends for channels and active messages: ranks of two GPUs, or, where there is one, both ends
// in its memory.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "bench.hpp"
#include "polypath/device/active_messages_view.hpp"
#include "polypath/device/channel_view.hpp"
#include "polypath/messaging/channel.h"

namespace messaging_bench {

/// Which GPUs they are on, and how their lines are named.
struct TwoEnds {
  explicit TwoEnds(Bench& bench) : are_two(bench.gpus() > 1) {}
  [[nodiscard]] std::string name(const std::string& line) const {
    return (are_two ? "GPU to GPU, " : "both ends on one GPU, ") + line;
  }
  [[nodiscard]] int gpu(unsigned end) const { return are_two ? static_cast<int>(end) : 0; }
  /// Both ends' kernels run at once.
  [[nodiscard]] unsigned stream(unsigned end) const { return are_two ? 0 : end; }
  bool are_two;
};

/// A channel, and a window of `window_bytes` at each end.
class ChannelEnds {
 public:
  ChannelEnds(Bench& bench, const polypath_channel_options& options, std::size_t window_bytes);
  ~ChannelEnds();
  ChannelEnds(const ChannelEnds&) = delete;
  ChannelEnds& operator=(const ChannelEnds&) = delete;

  std::array<polypath::device::channel_view, 2> views{};
  std::array<unsigned char*, 2> windows{};

 private:
  Bench& bench_;
  std::vector<polypath_comm*> comms_;
  std::vector<polypath_symmetric*> memories_;
  std::vector<polypath_channel*> channels_;
};

class ActiveEnds {
 public:
  ActiveEnds(Bench& bench, const polypath_active_messages_options& options);
  ~ActiveEnds();
  ActiveEnds(const ActiveEnds&) = delete;
  ActiveEnds& operator=(const ActiveEnds&) = delete;

  std::array<polypath::device::active_messages_view, 2> views{};

 private:
  Bench& bench_;
  std::vector<polypath_comm*> comms_;
  std::vector<polypath_active_messages*> messages_;
};

}  // namespace messaging_bench
