// NCCL runs the calls on one communicator in their order, also on different streams, and so does
// polypath; between the two of them this sees to it. Without it a kernel of either could hold a GPU
// while it waits for another GPU, on which the other's kernel waits for this one.
#pragma once

#include "nccl/engine.hpp"

namespace polypath::nccl {

enum class Provider : unsigned char { none, nccl, polypath };

/// The order of one communicator; one thread at a time.
class StreamOrder {
 public:
  StreamOrder() noexcept = default;
  /// Events are of this context.
  explicit StreamOrder(CUcontext context) noexcept : context_(context) {}
  StreamOrder(const StreamOrder&) = delete;
  StreamOrder& operator=(StreamOrder&& other) noexcept;
  ~StreamOrder();

  // False: the driver failed, and the calls would not run in their order.

  /// Before a call is issued on the stream: it waits for the call before, where that was the
  /// other's on another stream. In a capture it waits for what was called in the same one.
  [[nodiscard]] bool before(Provider provider, CUstream stream) noexcept;
  /// After it.
  [[nodiscard]] bool after(Provider provider, CUstream stream) noexcept;
  /// Makes `waiting` wait for all that is on `stream`.
  [[nodiscard]] bool join(CUstream waiting, CUstream stream) noexcept;
  /// Gives its events back. It is not used any more.
  void end() noexcept;
  /// The context is gone, and the events with it.
  void forget() noexcept { context_ = nullptr; }
  /// Whether polypath's last call is done.
  [[nodiscard]] bool is_idle() const noexcept;

 private:
  /// The latest call outside of capture, or in one.
  struct Last {
    CUevent event = nullptr;
    Provider provider = Provider::none;
    CUstream stream = nullptr;
    unsigned long long stream_id = 0;  ///< no other stream ever has it; 0: it has none
    unsigned long long capture = 0;    ///< in which it was; 0: in none
  };
  [[nodiscard]] unsigned long long id_of(CUstream stream) const noexcept;
  bool record(CUevent& event, CUstream stream) noexcept;

  CUcontext context_ = nullptr;  // null: it has none any more
  Last last_;
  Last last_captured_;
};

}  // namespace polypath::nccl
