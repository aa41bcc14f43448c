// Queues and pairs of one rank: their memory, the views of their sides, how they went.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/registered_memory.hpp"
#include "driver/resources.hpp"
#include "messaging/host_queue_side.hpp"
#include "messaging/queue_shape.hpp"

namespace polypath {

/// Throws InvalidArgument for what is wrong with an argument; what the communicator throws.
class QueueSet {
 public:
  static constexpr int kHost = -1;  ///< instead of a rank

  /// In the memory of this rank's GPU. `communicator` must outlive it, here and below.
  static std::unique_ptr<QueueSet> local(Communicator& communicator, const QueueShape& shape,
                                         int count);
  /// Collective.
  static std::unique_ptr<QueueSet> connected(Communicator& communicator, const QueueShape& shape,
                                             int from, int to, int count);
  /// Collective: from each rank to each.
  static std::unique_ptr<QueueSet> connected_each(Communicator& communicator,
                                                  const QueueShape& shape);
  /// In pinned host memory; the CPU is on side `host`.
  static std::unique_ptr<QueueSet> with_host(Communicator& communicator, const QueueShape& shape,
                                             polypath_queue_side host, int count);
  /// Frees what is not symmetric memory.
  ~QueueSet();
  QueueSet(const QueueSet&) = delete;
  QueueSet& operator=(const QueueSet&) = delete;

  /// Collective where the creation was; nothing else is called after it.
  void release();

  [[nodiscard]] int count() const noexcept { return static_cast<int>(count_); }
  [[nodiscard]] std::size_t view_bytes() const noexcept;
  /// Writes the queue_view or spsc_view of `bytes` bytes to `view`.
  void view(int index, polypath_queue_side side, void* view, std::size_t bytes) const;
  [[nodiscard]] nlohmann::json report();
  /// The CPU's. Throws InvalidArgument where there is none on that side.
  HostQueueSide& host_end(int index, polypath_queue_side side);
  [[nodiscard]] Communicator& communicator() const noexcept { return communicator_; }
  [[nodiscard]] const QueueShape& shape() const noexcept { return shape_; }
  /// A wait of the CPU was over at the time limit: where, as report() says from now on.
  std::string record_cpu_timeout(int index, polypath_queue_side side, std::uint64_t turn);

 private:
  /// Addresses as one side has them.
  struct Places {
    CUdeviceptr tail = 0;
    CUdeviceptr credit = 0;
    CUdeviceptr credit_source = 0;
    CUdeviceptr head = 0;
    CUdeviceptr read = 0;
    CUdeviceptr closed = 0;
    CUdeviceptr cells = 0;
  };
  /// The side of one queue that this rank has.
  struct End {
    int from = 0;
    int to = 0;
    Places places;
    bool is_here = false;
    std::unique_ptr<HostQueueSide> host;
  };
  struct Said;

  QueueSet(Communicator& communicator, const QueueShape& shape, int count);
  [[nodiscard]] Places places_of(CUdeviceptr producer, CUdeviceptr consumer) const;
  [[nodiscard]] CUdeviceptr alloc(std::uint64_t bytes);
  void open(const std::vector<CUdeviceptr>& closed);
  void connect(const std::vector<std::pair<int, int>>& paths, std::uint64_t parts,
               const std::function<void(SymmetricMemory&)>& place);
  void number();
  [[nodiscard]] const End& end(int index, polypath_queue_side side) const;
  [[nodiscard]] std::uint64_t word_at(CUdeviceptr at);

  Communicator& communicator_;
  QueueShape shape_;
  std::size_t count_;
  std::vector<End> producers_;
  std::vector<End> consumers_;
  CUdeviceptr device_ = 0;
  std::unique_ptr<RegisteredMemory> host_;  // the CPU reads it, also after a reset
  SymmetricMemory symmetric_;
  std::shared_ptr<Said> said_;
  std::uint32_t first_number_ = 0;
  Stream stream_;
};

}  // namespace polypath
