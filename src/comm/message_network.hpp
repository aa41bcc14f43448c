// Exchanges between nodes by messages in host memory (polypath_network of comm.h): through pinned
// memory, so that any MPI will do.
//
//   on the stream    copies to pinned memory, an event | wait for a word       | copies from there
//   by a thread                                        | messages, then the word |
//
// The thread is this engine's, or one of the caller's that waits.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <list>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/network_engine.hpp"
#include "comm/node_map.hpp"
#include "polypath/comm.h"
#include "tune/resources.hpp"

namespace polypath {

class MessageNetwork final : public NetworkEngine {
 public:
  /// Collective. All but `network` must outlive it. Throws DriverError, CommunicatorError.
  MessageNetwork(Communicator& local, const NodeMap& map, const polypath_network& network);
  /// With messages under way, which is so after an abort alone, their memory is left.
  ~MessageNetwork() override;

  [[nodiscard]] std::string_view name() const noexcept override { return "messages"; }
  void exchange(std::span<const NetworkMessage> sends, std::span<const NetworkMessage> receives,
                CUstream stream) override;
  bool progress() noexcept override;
  [[nodiscard]] std::uint64_t sent_bytes() const noexcept override { return sent_bytes_; }

 private:
  /// Pinned memory of one exchange at a time.
  struct Region {
    std::byte* sends = nullptr;
    std::byte* receives = nullptr;
    std::uint64_t* word = nullptr;  ///< the latest exchange that is done
    Event emptied;                  ///< what came was copied to the GPU
    bool was_used = false;
  };
  struct Message {
    int rank = 0;
    std::byte* memory = nullptr;
    std::uint64_t bytes = 0;
    std::uint64_t request = 0;
    bool is_done = false;
  };
  struct Exchange {
    std::uint64_t number = 0;
    Event staged;
    std::uint64_t* word = nullptr;
    bool has_begun = false;
    std::vector<Message> sends;
    std::vector<Message> receives;
  };

  Event take_event();
  /// Whether it is done.
  bool advance(Exchange& exchange);
  void begin(Exchange& exchange);
  void advance_all() noexcept;  // with the lock
  void run(const std::stop_token& stop);

  Communicator& local_;
  const NodeMap& map_;
  const polypath_network network_;
  std::byte* memory_ = nullptr;
  std::vector<Region> regions_;
  std::uint64_t number_ = 0;  // of the latest exchange
  std::uint64_t sent_bytes_ = 0;

  std::mutex mutex_;  // of what follows
  std::condition_variable_any came_;
  std::list<Exchange> pending_;
  std::vector<Event> events_;  // free
  bool is_lost_ = false;       // messages are under way that nobody waits for
  std::jthread thread_;
};

}  // namespace polypath
