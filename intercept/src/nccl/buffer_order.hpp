// Uses of one memory that come one after another, whatever streams they are on and whatever graphs
// they are in: in the order of calls and of launches of graphs on the host.
#pragma once

#include <optional>
#include <vector>

#include "nccl/cuda.hpp"

namespace polypath::nccl {

/// Of one memory; one thread at a time, with its context current.
///
/// As polypath orders the calls of a communicator: an event stands for the latest use. A graph
/// waits for it, and records it after its own uses, at each launch. Drivers before CUDA 12.3
/// cannot be told to: there programs order graphs and other calls. So they do with captures that
/// take turns in using one memory.
class BufferOrder {
 public:
  BufferOrder() noexcept = default;
  BufferOrder(const BufferOrder&) = delete;
  BufferOrder& operator=(BufferOrder&& other) noexcept;
  ~BufferOrder();

  /// Before a use on the stream, which is in this capture, as capture_of() says. False: it cannot
  /// be put after the use before.
  bool begin(CUstream stream, std::optional<unsigned long long> capture) noexcept;
  /// After it. False: nothing can be put after this use.
  bool end(CUstream stream, std::optional<unsigned long long> capture) noexcept;
  /// Whether the latest use is done. False as well where that cannot be known.
  [[nodiscard]] bool is_done() const noexcept;
  /// Until it is.
  void wait() const noexcept;

 private:
  [[nodiscard]] bool orders_graphs() const noexcept;
  /// One node, that moves after the latest use and that nothing waits for.
  bool record_in_graph(CUstream stream, bool is_first);

  CUevent last_ = nullptr;
  bool is_lost_ = false;  // a use could not be recorded
  // Of the latest capture:
  unsigned long long capture_ = 0;
  CUevent captured_ = nullptr;       // after its latest use
  CUgraphNode record_ = nullptr;     // of `last_`
  std::vector<CUgraphNode> ends_{};  // what the latest use ends with
};

}  // namespace polypath::nccl
