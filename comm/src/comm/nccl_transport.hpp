// Exchanges between nodes by NCCL, found at run time: between the memories of GPUs, on the stream.
//
// NCCL's kernels send what is there. So next to the data goes a record (exchange_args.h): how many
// waits of this rank have timed out, and which call it is. A kernel on the stream looks at
// the records that came, and reports what is wrong; the host is not on the way. NCCL's kernels know
// no time limit either: a thread of the host watches how long they take (network_progress.hpp).
#pragma once

#include <memory>
#include <mutex>

#include "comm/kernels/exchange_args.h"
#include "comm/nccl_functions.hpp"
#include "comm/network_progress.hpp"
#include "comm/network_transport.hpp"
#include "comm/node_map.hpp"
#include "comm/rank_error.hpp"

namespace polypath {

class NcclTransport final : public NetworkTransport {
 public:
  /// What a rank tells the others first.
  struct Hello {
    RankError problem;
    NcclId id{};  ///< of node 0's: its equals meet by it
  };

  /// Finds the library (libnccl.so.2). Throws NotSupported, DriverError.
  NcclTransport(Communicator& local, const NodeMap& map);
  /// On node 0. Throws CommunicatorError.
  void fill(Hello& hello) const;
  /// Collective over the equals, with the greeting of node 0's. Throws CommunicatorError, also when
  /// one does not come within the time limit.
  void connect(const Hello& of_node_0);
  ~NcclTransport() override;

  [[nodiscard]] std::string_view name() const noexcept override { return "nccl"; }
  void exchange(std::span<const NetworkMessage> sends, std::span<const NetworkMessage> receives,
                const ExchangeMark& mark, CUstream stream) override;
  bool progress() noexcept override { return false; }
  void stop() noexcept override { gate_.stop(); }
  [[nodiscard]] std::uint64_t sent_bytes() const noexcept override { return sent_bytes_; }

 private:
  void check(int result, const char* call) const;
  /// The records of one exchange.
  [[nodiscard]] std::size_t bytes_of_records() const noexcept;
  void issue(std::span<const NetworkMessage> sends, std::span<const NetworkMessage> receives,
             const ExchangeArgs& args, CUstream stream);
  /// Ends NCCL's kernels.
  void abort() noexcept;

  Communicator& local_;
  const NodeMap& map_;
  std::shared_ptr<const NcclFunctions> nccl_;
  void* comm_ = nullptr;
  // For each exchange that may be under way, on the GPU: a record that is sent, and one a node.
  CUdeviceptr records_ = 0;
  std::uint64_t number_ = 0;
  std::uint64_t sent_bytes_ = 0;
  std::mutex mutex_;  // of calls of NCCL, and of
  bool is_aborted_ = false;
  NetworkProgress gate_;  // last: its thread uses the others
};

}  // namespace polypath
