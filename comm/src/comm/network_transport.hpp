// What moves bytes between nodes: an engine that exists already, as it is. There are two: messages
// between hosts (an MPI; host_message_transport.hpp), and NCCL (nccl_transport.hpp).
//
//   made            by all ranks together, when their communicator is created
//   exchange()      on a stream, asynchronous: this rank sends to its equals on other nodes, and
//                   receives from them. All ranks make the same exchanges in the same order
//   progress()      of engines that have no thread of their own: called by a thread that waits
//   destroyed       after all exchanges
//
// A rank that does not answer ends every exchange within the communicator's time limit, with an
// abort of the communicator of this node. So does an abort.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace polypath {

/// Bytes to or from a node's rank with this rank's number there.
struct NetworkMessage {
  int node = 0;
  CUdeviceptr address = 0;  ///< memory of this rank's GPU
  std::uint64_t bytes = 0;  ///< the same on both sides; for 0 nothing is sent
};

/// What must be alike on all ranks of a call: sent next to the data, and compared with what comes.
struct ExchangeMark {
  std::uint32_t what = 0;    ///< of the call, and a hash of what else must be alike
  std::uint64_t count = 0;   ///< its elements
  std::uint32_t number = 0;  ///< of the call: for what is said of it
  /// Whose description says what differs (WaitRegistry).
  std::uint32_t waits = 0;
};

/// The limit of what one exchange sends, and of what it receives, in bytes; what is sent to
/// several nodes counts once.
inline constexpr std::uint64_t kExchangeBytes = (std::uint64_t{4} << 20) + 65536;

/// Exchanges of a rank that may be under way at once: the caller's streams see to that.
inline constexpr std::size_t kMaxExchanges = 16;

/// Calls of one rank come from one thread at a time.
class NetworkTransport {
 public:
  NetworkTransport() = default;
  virtual ~NetworkTransport() = default;
  NetworkTransport(const NetworkTransport&) = delete;
  NetworkTransport& operator=(const NetworkTransport&) = delete;

  /// "messages", "nccl".
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;
  /// `stream`, of this rank's GPU, goes on once all has been sent and has come: one message to and
  /// from a node at most. What comes of another call aborts the communicator of this node. The
  /// context is current. Throws DriverError and CommunicatorError; others wait for this rank then.
  virtual void exchange(std::span<const NetworkMessage> sends,
                        std::span<const NetworkMessage> receives, const ExchangeMark& mark,
                        CUstream stream) = 0;
  /// Does what can be done without waiting. False: it need not be called at all.
  virtual bool progress() noexcept = 0;
  /// Ends its thread, if it has one: nothing more is called.
  virtual void stop() noexcept = 0;
  /// To other nodes, of exchanges that were issued.
  [[nodiscard]] virtual std::uint64_t sent_bytes() const noexcept = 0;
};

}  // namespace polypath
