// Exchanges between nodes by NCCL, found at run time: between the memories of GPUs, on the stream.
//
// NCCL's kernels know no time limit, and send what is there: so the host looks behind each exchange
// (exchange_gate.hpp), and beside the data goes how many blocks of this rank have given up a wait.
// Who gets another number than 0 has data that are none.
#pragma once

#include <memory>
#include <mutex>

#include "comm/exchange_gate.hpp"
#include "comm/nccl_functions.hpp"
#include "comm/network_engine.hpp"
#include "comm/node_map.hpp"
#include "comm/registered_memory.hpp"
#include "comm/verdict.hpp"

namespace polypath {

class NcclNetwork final : public NetworkEngine {
 public:
  /// What a rank tells the others first.
  struct Hello {
    Problem problem;
    NcclId id{};  ///< of node 0's: its equals meet by it
  };

  /// Finds the library (libnccl.so.2). Throws NotSupported, DriverError.
  NcclNetwork(Communicator& local, const NodeMap& map);
  /// On node 0. Throws CommunicatorError.
  void fill(Hello& hello) const;
  /// Collective over the equals, with the greeting of node 0's. Throws CommunicatorError, also when
  /// one does not come within the time limit.
  void connect(const Hello& of_node_0);
  ~NcclNetwork() override;

  [[nodiscard]] std::string_view name() const noexcept override { return "nccl"; }
  void exchange(std::span<const NetworkMessage> sends, std::span<const NetworkMessage> receives,
                CUstream stream) override;
  bool progress() noexcept override { return false; }
  void stop() noexcept override { gate_.stop(); }
  [[nodiscard]] std::uint64_t sent_bytes() const noexcept override { return sent_bytes_; }

 private:
  void check(int result, const char* call) const;
  void issue(std::span<const NetworkMessage> sends, std::span<const NetworkMessage> receives,
             CUdeviceptr given_up, CUstream stream);
  /// Ends NCCL's kernels.
  void abort() noexcept;

  Communicator& local_;
  const NodeMap& map_;
  std::shared_ptr<const NcclFunctions> nccl_;
  void* comm_ = nullptr;
  // A word for each node and each exchange that may be under way: on the GPU, and on the host.
  CUdeviceptr came_ = 0;
  RegisteredMemory came_memory_;
  std::uint64_t* came_here_;
  std::uint64_t number_ = 0;
  std::uint64_t sent_bytes_ = 0;
  std::mutex mutex_;  // of calls of NCCL, and of
  bool is_aborted_ = false;
  ExchangeGate gate_;  // last: its thread uses the others
};

}  // namespace polypath
