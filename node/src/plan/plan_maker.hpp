// What a planner computes, and remembers nothing of: plans with their schedules, by a tuned choice
// where one applies and by the cost model where none does. Pure: the same inputs and route sets
// give the same plan.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/options.hpp"
#include "plan/transfer_schedule.hpp"
#include "plan/tuned_transfer.hpp"

namespace polypath {

/// A plan with its schedule; shared and never changed.
struct PreparedPlan {
  Plan plan;
  GroupSchedule schedule;
  ExecutorKind executor = ExecutorKind::stream;
  bool tuned = false;  ///< the plan follows a tuned choice
  /// It serves only until what was asked for is computed.
  bool provisional = false;
  /// What to do instead while transfers of the pair are under way on other streams; null: the same.
  std::shared_ptr<const PreparedPlan> in_window;
  /// What to do instead on a stream that holds no work; null: the same. There the CPU's time to
  /// issue delays the transfer: the first copy of a graph waits for the launch of all, that of a
  /// stream does not, and staged routes begin later than the direct one, so that a small gain is
  /// lost.
  std::shared_ptr<const PreparedPlan> on_idle_stream;
  /// What to do instead after a transfer of the pair that is under way on the same stream, with
  /// nothing between; null: the same.
  std::shared_ptr<const PreparedPlan> in_sequence;
};

/// What plans are made from.
struct PlanInputs {
  Node node;
  PlanOptions options;
  ExecutorSetting executor = ExecutorSetting::automatic;
  std::vector<TunedTransfer> tuned;
};

/// What is asked for: see Planner::serve().
struct PlanKey {
  std::vector<Request> requests;
  std::uint64_t without = 0;
  std::vector<Request> concurrent = {};
  friend bool operator==(const PlanKey&, const PlanKey&) = default;
};

/// Next to others, whose copies begin when they like, staged legs take longer than is foreseen:
/// 64 MiB both ways between two H100s lost 25 us instead of the predicted gain of 8, 256 MiB gained
/// 27 of 47. So less than 32 us, and less than a tenth of the native copies' time, is not gained.
bool pays_under_contention(const Plan& plan) noexcept;

/// The bit of a memory in PlanKey::without; 0 for memories past the 64th, which are never left out.
std::uint64_t memory_bit(const Node& node, MemoryId memory) noexcept;

class PlanMaker {
 public:
  /// Gives the route sets for a key that route_sets_key() made.
  using RouteSetsFunction = std::function<std::shared_ptr<const RouteSets>(const PlanKey&)>;

  /// `inputs` must outlive it.
  PlanMaker(const PlanInputs& inputs, RouteSetsFunction route_sets_of);

  /// What the route sets of `key` depend on: all its transfers, their sizes in proportion to the
  /// largest. Proportions of unequal sizes are rounded to powers of the square root of two, so that
  /// groups of changing sizes have few route sets.
  [[nodiscard]] static PlanKey route_sets_key(const PlanKey& key);
  [[nodiscard]] std::shared_ptr<const RouteSets> make_route_sets_of(
      const PlanKey& route_sets_key) const;

  /// The plan of `key`, with those that serve in a window and on an idle stream.
  [[nodiscard]] std::shared_ptr<PreparedPlan> make(const PlanKey& key) const;
  /// The same without those two.
  [[nodiscard]] std::shared_ptr<PreparedPlan> make_main(const PlanKey& key) const;
  /// Whether make() may add those two to make_main().
  [[nodiscard]] bool has_variants(const PlanKey& key) const;

  /// The plan that follows `choice`; null where it does not fit.
  [[nodiscard]] std::shared_ptr<PreparedPlan> follow(const PlanKey& key,
                                                     const TransferConfig& choice,
                                                     ExecutorKind executor) const;
  /// The cost model's own plan, without tuned choices.
  [[nodiscard]] std::shared_ptr<PreparedPlan> modelled(const PlanKey& key,
                                                       ExecutorKind executor) const;
  /// The native copies, without route sets.
  [[nodiscard]] std::shared_ptr<PreparedPlan> native(const PlanKey& key) const;

 private:
  [[nodiscard]] const TunedTransfer* find_tuned(const PlanKey& key, Pattern pattern,
                                                std::optional<ExecutorKind> executor) const;
  /// `executor`: nothing for the one that was measured faster, if the settings leave it open.
  [[nodiscard]] std::shared_ptr<PreparedPlan> tuned_plan(
      const PlanKey& key, Pattern pattern, std::optional<ExecutorKind> executor) const;
  [[nodiscard]] std::shared_ptr<PreparedPlan> on_idle_stream(const PlanKey& key,
                                                             const PreparedPlan& busy) const;
  [[nodiscard]] std::shared_ptr<PreparedPlan> in_sequence(const PlanKey& key) const;
  [[nodiscard]] std::shared_ptr<PreparedPlan> make_alone(const PlanKey& key) const;
  [[nodiscard]] std::shared_ptr<PreparedPlan> make_concurrent(const PlanKey& key) const;
  [[nodiscard]] std::shared_ptr<PreparedPlan> prepared(Plan plan, ExecutorKind executor) const;
  [[nodiscard]] bool tunable(const PlanKey& key) const;

  const PlanInputs& inputs_;
  RouteSetsFunction route_sets_of_;
};

}  // namespace polypath
