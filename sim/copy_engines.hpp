// Traffic of other programs in virtual time, and the copy engines that it shares with this one.
//
// A GPU has one copy engine for each direction of its host link. An engine that others use serves
// copies in the order in which they were queued, whoever queued them: a copy of this program, which
// counts as queued at its issue, waits for each block queued before it, and their next block waits
// for the copy. No side keeps the engine for longer than its turn while the other one waits. Links
// between GPUs are shared in max-min fairness instead, as among copies of this program.
//
// An engine without blocks of others lets copies of this program start at once, as if it were not
// there. Pure arithmetic, no clock of its own; time is in microseconds.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <span>
#include <vector>

#include "operation.hpp"

namespace polypath::sim {

/// Blocks that another program copies over one link without pause, or by turns on and off.
struct TrafficFlow {
  FlowDemand block;      ///< one block: its bytes, links and ports
  int engine = -1;       ///< resource of the host link whose engine serves it; -1: shares the link
  int queue_blocks = 1;  ///< blocks queued at any time while it is on, the one in service included
  double on_us = 0;      ///< of each period; without off_us it is always on
  double off_us = 0;
  double begin_us = 0;
  double end_us = std::numeric_limits<double>::infinity();
  double block_us = 0;  ///< what a block takes alone
};

class CopyEngines {
 public:
  static constexpr double kNever = FlowNetwork::kNever;

  /// What the engines let begin: a copy of this program, or so many bytes of it.
  using BeginCopy = std::function<void(const OperationPtr&, double bytes)>;
  /// ... or a block of a flow. The id is passed to block_ended().
  using BeginBlock = std::function<void(int flow, const FlowDemand&)>;

  /// `hold_us`: after a copy, for so long an engine waits for the next copy of the same stream.
  CopyEngines(double hold_us, BeginCopy begin_copy, BeginBlock begin_block)
      : hold_us_(hold_us),
        begin_copy_(std::move(begin_copy)),
        begin_block_(std::move(begin_block)) {}

  /// Starts a flow. `running`: copies of this program that move bytes now. Returns the flow's id, 1
  /// for the first.
  int start(TrafficFlow flow, std::span<const OperationPtr> running, double now_us);
  /// Queues no block from now on; those queued are still copied. Ignores unknown ids.
  void stop(int id, double now_us);
  /// Blocks copied so far; 0 for an unknown id.
  [[nodiscard]] std::uint64_t blocks(int id) const noexcept;
  /// Blocks queued now, the one in service included; 0 for an unknown id.
  [[nodiscard]] int queued(int id) const noexcept;

  /// A copy of this program may run: begins it now, or when its engines let it.
  void arrive(const OperationPtr& copy, double now_us);
  /// The bytes of a copy that the engines let begin have moved. True when the copy is complete;
  /// otherwise the rest waits for its next turn.
  bool copy_ended(const OperationPtr& copy, double now_us);
  void block_ended(int id, double now_us);

  /// Whether copies of this program wait for an engine.
  [[nodiscard]] bool has_waiting() const noexcept { return waiting_ > 0; }
  /// When a flow turns on or off next, or an engine takes its next copy.
  [[nodiscard]] double next_us() const noexcept;
  /// Lets happen what is due.
  void run(double now_us);

 private:
  struct Flow {
    TrafficFlow traffic;
    bool is_on = false;
    double next_switch_us = kNever;
    int queued = 0;
    std::uint64_t copied = 0;
  };
  /// What is queued at an engine.
  struct Entry {
    double queued_us = 0;
    std::uint64_t order = 0;
    OperationPtr copy;  ///< null: a block
    int flow = 0;       ///< of a block
  };
  struct Engine {
    std::vector<Entry> queue;
    bool has_block = false;           ///< in service
    int copies = 0;                   ///< of this program, in service
    double free_us = 0;               ///< takes nothing from its queue before
    double turn_bytes = 0;            ///< of this program since the last block
    double blocks_since_us = kNever;  ///< has served nothing but blocks since; kNever: a copy last
  };
  /// A copy of this program that uses engines.
  struct Copy {
    std::vector<int> engines;  ///< resources, ascending
    std::size_t held = 0;      ///< engines that let it pass
    double left_bytes = 0;
    double turn_bytes = 0;  ///< under way
    double arrived_us = 0;
    double blocks_since_us = kNever;  ///< it waited for blocks, which the engine served since
  };

  Flow& flow(int id) { return flows_[static_cast<std::size_t>(id) - 1]; }
  void switch_flow(Flow& flow, int id, double now_us);
  void queue_blocks(int id, double now_us);
  [[nodiscard]] static bool has_block_waiting(const Engine& engine) noexcept;
  [[nodiscard]] static double pick_us(const Engine& engine) noexcept;
  void pick(Engine& engine, double now_us);
  /// All engines of the copy serve it.
  void begin(const OperationPtr& copy, double now_us);
  /// Passes the engines that are free, queues at the first that is not; begins when all let it.
  void pass(const OperationPtr& copy, double now_us);

  double hold_us_;
  BeginCopy begin_copy_;
  BeginBlock begin_block_;
  std::vector<Flow> flows_;
  std::map<int, Engine> engines_;         // by resource
  std::map<std::uint64_t, Copy> copies_;  // by Operation::id
  int waiting_ = 0;
  std::uint64_t next_order_ = 1;
};

}  // namespace polypath::sim
