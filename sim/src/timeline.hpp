// Virtual time of all devices of a node: runs operations in the order that their dependencies, the
// costs and the capacity graph give. Deterministic: equal times resolve by order of issue.
//
// An operation may run when it is issued, the operation before it on its stream has ended, and
// event_us after the others that it waits for. A copy's bytes start to flow copy_start_us later, or
// copy_gap_us after the end of a copy that runs ahead of it on its stream; the latest of these.
#pragma once

#include <set>
#include <vector>

#include "copy_engines.hpp"
#include "flow_network.hpp"
#include "operation.hpp"
#include "topology/node.hpp"

namespace polypath::sim {

/// What runs in the same time next to the operations, and uses the same links: kernels.
class KernelTimeline {
 public:
  virtual ~KernelTimeline() = default;

  /// When something of it happens next; Timeline::kNever when nothing does by itself.
  [[nodiscard]] virtual double next_us() const = 0;
  /// Lets happen what is due at that time.
  virtual void run(double now_us) = 0;
  /// A flow that it started has ended.
  virtual void flow_ended(FlowNetwork::Id id, double now_us) = 0;
  /// Others may have written memory that it waits for. True when something of it goes on.
  virtual bool look(double now_us) = 0;
  /// Nothing has come for very long: ends what waits.
  virtual void give_up(double now_us) = 0;
};

class Timeline : private CopyService {
 public:
  static constexpr double kNever = FlowNetwork::kNever;

  Timeline(const Costs& costs, const std::vector<Capacity>& capacities);
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;
  ~Timeline() override = default;

  /// Adds an operation at CPU time `issue_us`, which may not lie before now_us().
  OperationPtr issue(Operation operation, double issue_us);

  /// Time up to which everything has happened.
  [[nodiscard]] double now_us() const noexcept { return now_us_; }
  /// When something happens next; kNever when nothing does by itself, or nothing but traffic of
  /// others.
  [[nodiscard]] double next_us() const noexcept;

  /// Traffic of other programs, from now on; CopyEngines says how it is shared. Returns its id.
  int start_traffic(TrafficFlow flow);
  void stop_traffic(int id) { engines_.stop(id, now_us_); }
  [[nodiscard]] std::uint64_t traffic_blocks(int id) const noexcept { return engines_.blocks(id); }
  [[nodiscard]] int traffic_queued(int id) const noexcept { return engines_.queued(id); }

  /// Lets all happen that is due until `us`.
  void run_until(double us);

  /// Lets the next event happen. False when only an outside event or others' traffic can follow.
  bool step();

  /// Completes, at `cpu_us`, operations that wait for a value if an outside write has satisfied
  /// them. Must be called before time is moved on.
  void poll(double cpu_us);

  void attach(KernelTimeline& companion) { companion_ = &companion; }
  [[nodiscard]] KernelTimeline* companion() const noexcept { return companion_; }
  /// Starts a flow of the companion, now. Its ids are its own.
  void start_flow(FlowNetwork::Id id, FlowDemand demand);

  /// Operations that wait for a value now.
  [[nodiscard]] bool has_waiting() const noexcept { return !waiting_.empty(); }

 private:
  struct Start {
    double us;
    OperationPtr operation;
  };
  struct ById {
    bool operator()(const OperationPtr& a, const OperationPtr& b) const { return a->id < b->id; }
  };
  struct Earlier {
    bool operator()(const Start& a, const Start& b) const {
      return a.us != b.us ? a.us < b.us : a.operation->id < b.operation->id;
    }
  };

  void make_ready(const OperationPtr& operation);
  void start(const OperationPtr& operation);
  void complete(const OperationPtr& operation);
  /// When something happens next, traffic of others included.
  [[nodiscard]] double next_of_all_us() const noexcept;
  void step_to(double next_us);
  void begin_copy(const OperationPtr& copy, double bytes) override;
  void begin_block(int flow, const FlowDemand& block) override;
  double interrupt_copy(const OperationPtr& copy) override;
  double interrupt_block(int flow) override;
  void flow_ended(FlowNetwork::Id id);

  Costs costs_;
  FlowNetwork network_;
  CopyEngines engines_;
  bool has_traffic_ = false;
  std::map<FlowNetwork::Id, int> blocks_;  // of traffic, under way: the flow's id
  FlowNetwork::Id next_block_ = 0;
  int companion_flows_ = 0;
  std::set<Start, Earlier> starts_;
  std::map<FlowNetwork::Id, OperationPtr> flowing_;
  std::set<OperationPtr, ById> waiting_;
  KernelTimeline* companion_ = nullptr;
  double now_us_ = 0;
  std::uint64_t next_id_ = 1;
};

}  // namespace polypath::sim
