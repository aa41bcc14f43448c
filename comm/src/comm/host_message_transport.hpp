// Exchanges between nodes by messages in host memory (polypath_network of comm.h): through pinned
// memory, so that any MPI will do.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "comm/network_progress.hpp"
#include "comm/network_transport.hpp"
#include "comm/node_map.hpp"
#include "comm/registered_memory.hpp"
#include "polypath/comm.h"

namespace polypath {

class HostMessageTransport final : public NetworkTransport {
 public:
  /// Collective. All but `network` must outlive it. Throws DriverError, CommunicatorError.
  HostMessageTransport(Communicator& local, const NodeMap& map, const polypath_network& network);
  /// With messages under way, which is so after an abort alone, their memory is left.
  ~HostMessageTransport() override;

  [[nodiscard]] std::string_view name() const noexcept override { return "messages"; }
  void exchange(std::span<const NetworkMessage> sends, std::span<const NetworkMessage> receives,
                const ExchangeMark& mark, CUstream stream) override;
  bool progress() noexcept override { return gate_.progress(); }
  void stop() noexcept override { gate_.stop(); }
  [[nodiscard]] std::uint64_t sent_bytes() const noexcept override { return sent_bytes_; }

 private:
  /// Pinned memory of one exchange at a time.
  struct Region {
    std::byte* sends = nullptr;
    std::byte* receives = nullptr;
    Event emptied;  ///< what came was copied to the GPU
    bool was_used = false;
  };
  /// A header of kHeaderBytes, and the data.
  struct Message {
    int rank = 0;
    int node = 0;
    std::byte* memory = nullptr;
    std::uint64_t bytes = 0;  ///< with the header
    std::uint64_t request = 0;
    bool is_done = false;
  };
  struct Messages {
    int tag = 0;
    ExchangeMark mark;
    bool have_begun = false;
    std::vector<Message> sends;
    std::vector<Message> receives;
  };

  void begin(Messages& messages);
  /// Throws CommunicatorError when what came is of another call.
  void require_alike(const Messages& messages) const;
  /// Whether all are done.
  bool advance(Messages& messages);

  Communicator& local_;
  const NodeMap& map_;
  const polypath_network network_;
  /// The messages' pages: never given back with messages under way.
  std::unique_ptr<RegisteredMemory> memory_;
  std::vector<Region> regions_;
  std::uint64_t number_ = 0;  // of the latest exchange
  std::uint64_t sent_bytes_ = 0;
  int under_way_ = 0;     // exchanges with messages; the gate's thread counts
  NetworkProgress gate_;  // last: its thread uses the others
};

}  // namespace polypath
