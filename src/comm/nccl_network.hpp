// Exchanges between nodes by NCCL, found at run time: between the memories of GPUs, on the stream.
#pragma once

#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <thread>

#include "comm/communicator.hpp"
#include "comm/network_engine.hpp"
#include "comm/node_map.hpp"
#include "tune/resources.hpp"

namespace polypath {

struct NcclLibrary;

class NcclNetwork final : public NetworkEngine {
 public:
  /// What a rank tells the others first.
  struct Hello {
    Problem problem;
    std::array<char, 128> id{};  ///< an ncclUniqueId: of node 0, whose equals meet by it
  };

  /// Finds the library (libnccl.so.2). Throws NotSupported.
  NcclNetwork(Communicator& local, const NodeMap& map);
  /// On node 0; throws Error.
  void fill(Hello& hello) const;
  /// Collective over the equals, with the greeting of node 0's. Throws CommunicatorError, also when
  /// one does not come within the time limit.
  void connect(const Hello& of_node_0);
  ~NcclNetwork() override;

  [[nodiscard]] std::string_view name() const noexcept override { return "nccl"; }
  void exchange(std::span<const NetworkMessage> sends, std::span<const NetworkMessage> receives,
                CUstream stream) override;
  bool progress() noexcept override { return false; }
  [[nodiscard]] std::uint64_t sent_bytes() const noexcept override { return sent_bytes_; }

 private:
  /// On a stream: NCCL's kernels know no time limit.
  struct Exchange {
    std::uint64_t number = 0;
    Event began;
    Event ended;
    std::chrono::steady_clock::time_point seen{};  ///< when it was seen to have begun
  };

  void check(int result, const char* call) const;
  /// Whether all is well; with the lock.
  void look();
  void watch(const std::stop_token& stop);
  void abort(std::string_view reason) noexcept;

  Communicator& local_;
  const NodeMap& map_;
  std::shared_ptr<const NcclLibrary> library_;
  void* comm_ = nullptr;
  std::uint64_t number_ = 0;
  std::uint64_t sent_bytes_ = 0;

  std::mutex mutex_;  // of what follows, and of calls of NCCL
  std::condition_variable_any came_;
  std::list<Exchange> pending_;
  std::list<Exchange> free_;
  bool is_aborted_ = false;
  std::jthread thread_;
};

}  // namespace polypath
