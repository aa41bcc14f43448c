// Traffic of other programs in virtual time, and the copy engines that it shares with this one.
//
// A GPU has one copy engine for each direction of its host link. The programs that have copies for
// an engine take turns at it. A turn ends when its program has no copy that could run, and after
// kTurnUs where another program waits: what is in service then is interrupted, and goes on in the
// program's next turn. Without other waiting programs, a program's next turn begins when one ends.
// Links
// between GPUs are shared in max-min fairness instead, as among copies of this program.
//
// In its turns this program's copies run one after another in the order of their issue. An engine
// without blocks of others lets copies of this program start at once, as if it were not there. Pure
// arithmetic, no clock of its own; time is in microseconds.
#pragma once

#include <cstdint>
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

/// A program's turn at an engine that another one waits for. Measured on 4 x H200, next to blocks
/// of 8 MiB and of 64 MiB: a copy that is issued when the one before has ended waits 1075 us, and
/// 875 us when it is issued 200 us later (docs/cuda-notes.md).
inline constexpr double kTurnUs = 1070;

/// Moves the bytes of what has its turn.
class CopyService {
 public:
  virtual ~CopyService() = default;

  /// Begins a copy of this program, or its last `bytes` bytes.
  virtual void begin_copy(const OperationPtr& copy, double bytes) = 0;
  /// Begins a block of a flow, or what is left of it.
  virtual void begin_block(int flow, const FlowDemand& block) = 0;
  /// Interrupts what was begun. Returns the bytes that are left.
  virtual double interrupt_copy(const OperationPtr& copy) = 0;
  virtual double interrupt_block(int flow) = 0;
};

class CopyEngines {
 public:
  static constexpr double kNever = FlowNetwork::kNever;

  /// `hold_us`: how long an engine waits, after a copy, for the next copy of the same stream.
  /// `service` must outlive the engines.
  CopyEngines(double hold_us, CopyService& service) : hold_us_(hold_us), service_(service) {}

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
  /// The bytes of a copy, or of a flow's block, have moved.
  void copy_ended(const OperationPtr& copy, double now_us);
  void block_ended(int id, double now_us);

  /// Whether copies of this program wait for an engine.
  [[nodiscard]] bool has_waiting() const noexcept { return waiting_ > 0; }
  /// When a flow turns on or off next, or an engine takes its next copy or ends a turn.
  [[nodiscard]] double next_us() const noexcept;
  /// Lets happen what is due.
  void run(double now_us);

 private:
  // The turn's owner: this program, none, otherwise the flow with this id.
  static constexpr int kOwn = 0;
  static constexpr int kNobody = -1;

  struct Flow {
    TrafficFlow traffic;
    bool is_on = false;
    double next_switch_us = kNever;
    int queued = 0;
    double left_bytes = 0;  ///< of a block that was interrupted; 0: none was
    std::uint64_t copied = 0;
  };
  /// A copy of this program that waits for an engine.
  struct Entry {
    double queued_us = 0;
    std::uint64_t order = 0;
    OperationPtr copy;
  };
  struct Engine {
    std::vector<int> flows;             ///< ids
    std::vector<Entry> queue;           ///< copies of this program
    std::vector<OperationPtr> running;  ///< copies of this program that it lets run
    bool has_block = false;             ///< in service
    int turn = kNobody;
    double turn_end_us = 0;
    double others_since_us = kNever;  ///< when others got the engine that this program waits for
    double free_us = 0;               ///< takes nothing new before
  };
  /// A copy of this program that uses engines.
  struct Copy {
    std::vector<int> engines;  ///< resources, ascending
    std::size_t held = 0;      ///< engines that let it pass
    double left_bytes = 0;
    double arrived_us = 0;
    // Begin of the first turn that it has waited for; kNever: it has waited for none.
    double others_since_us = kNever;
    double turn_us = kNever;
  };

  Flow& flow(int id) { return flows_[static_cast<std::size_t>(id) - 1]; }
  [[nodiscard]] const Flow& flow(int id) const { return flows_[static_cast<std::size_t>(id) - 1]; }
  void switch_flow(Flow& flow, int id, double now_us);
  void queue_blocks(int id, double now_us);
  /// Copies or blocks that could have a turn, those in service included.
  [[nodiscard]] bool has_work(const Engine& engine, int turn) const noexcept;
  /// The next one after `engine.turn` that has work, itself the last; kNobody: none has.
  [[nodiscard]] int next_turn(const Engine& engine) const noexcept;
  [[nodiscard]] bool is_contended(const Engine& engine) const noexcept;
  [[nodiscard]] double next_of_engine_us(const Engine& engine) const noexcept;
  /// Called before something is queued.
  void note_arrival(Engine& engine, double now_us) const noexcept;
  void begin_turn(Engine& engine, int turn, double now_us);
  void interrupt(Engine& engine, double now_us);
  void pick(Engine& engine, double now_us);
  /// Passes the engines that are free, queues at the first that is not; begins when all let it.
  void pass(const OperationPtr& copy, double now_us);

  double hold_us_;
  CopyService& service_;
  std::vector<Flow> flows_;
  std::map<int, Engine> engines_;         // by resource
  std::map<std::uint64_t, Copy> copies_;  // by Operation::id
  int waiting_ = 0;
  std::uint64_t next_order_ = 1;
};

}  // namespace polypath::sim
