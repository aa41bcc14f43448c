// Plans with memory: ladders and schedules that were computed once are kept, because a program sends the
// same sizes over and over.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/options.hpp"
#include "plan/schedule.hpp"
#include "plan/tuned_choice.hpp"

namespace polypath {

/// A plan with its schedule; shared and never changed.
struct PreparedPlan {
  Plan plan;
  Schedule schedule;
  ExecutorKind executor = ExecutorKind::stream;
  bool tuned = false;  ///< the plan follows a tuned choice
  /// What to do instead while transfers of the pair are under way on other streams; null: the same.
  std::shared_ptr<const PreparedPlan> in_window;
  /// What to do instead on a stream that holds no work; null: the same. There the CPU's time to issue delays the
  /// transfer: the first copy of a graph waits for the launch of all, that of a stream does not, and staged
  /// routes begin so much later than the direct one that a small gain is lost.
  std::shared_ptr<const PreparedPlan> on_idle_stream;
};

/// Thread-safe. What it returns does not depend on what it remembers.
class Planner {
 public:
  /// `node` must outlive it.
  Planner(const Node& node, PlanOptions options, ExecutorChoice executor);

  /// The plan for `requests` without the staging memories of `without`, a set of bits: GPUs first, then
  /// host memories, by index. `beside`: transfers of other processes, as large as the first request;
  /// they are planned together, so that the same transfers have the same shares in each process, and
  /// then left out.
  std::shared_ptr<const PreparedPlan> plan(std::span<const Request> requests, std::uint64_t without,
                                           std::span<const Request> beside = {});

  /// The routes of each request that the maximum flow uses: what any size may need.
  std::vector<std::vector<Route>> widest(const std::vector<Request>& requests);

  /// The bit of a memory; 0 for memories past the 64th, which are never left out.
  [[nodiscard]] std::uint64_t bit(MemoryId memory) const noexcept;

  /// Forgets everything: the node's capacities have changed.
  void clear();

  /// From now on plans follow these choices where one applies: all kinds of routes are allowed, and the
  /// settings leave routes and chunks to the planner.
  void use(std::vector<TunedChoice> tuned);

  /// The plan that follows `choice`, or nothing where it does not fit.
  std::shared_ptr<const PreparedPlan> plan_of(const std::vector<Request>& requests,
                                              const Choice& choice, ExecutorKind executor);
  /// The cost model's own plan, whatever was tuned.
  std::shared_ptr<const PreparedPlan> model_plan(const std::vector<Request>& requests,
                                                 ExecutorKind executor);
  /// The cost model's own plans of every rung, widest first, whatever was tuned.
  std::vector<Plan> plans_of_rungs(const std::vector<Request>& requests);
  /// plan() gives this for `requests` until clear(), use() or another try_out().
  void try_out(const std::vector<Request>& requests, std::shared_ptr<const PreparedPlan> plan);
  /// plan() for `requests` is the same on an idle stream as behind work, until clear() or use(): a benchmark times
  /// what it can name.
  void pin(const std::vector<Request>& requests);

 private:
  struct Key {
    std::vector<Request> requests;
    std::uint64_t without = 0;
    std::vector<Request> beside = {};
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct Hash {
    std::size_t operator()(const Key& key) const noexcept;
  };

  // All with mutex_ held.
  std::shared_ptr<const Ladder> ladder(const Key& key);
  std::shared_ptr<PreparedPlan> made_of(const Key& key, const Choice& choice,
                                        ExecutorKind executor);
  std::shared_ptr<PreparedPlan> modelled(const Key& key, ExecutorKind executor);
  /// `executor`: nothing for whichever was measured faster, if the settings leave it open.
  std::shared_ptr<PreparedPlan> tuned_plan(const Key& key, Pattern pattern,
                                           std::optional<ExecutorKind> executor);
  const TunedChoice* find_tuned(const Key& key, Pattern pattern,
                                std::optional<ExecutorKind> executor) const;
  std::shared_ptr<PreparedPlan> tuned_on_idle_stream(const Key& key, ExecutorKind busy);
  std::shared_ptr<PreparedPlan> make_alone(const Key& key);
  std::shared_ptr<PreparedPlan> make_beside(const Key& key);

  const Node& node_;
  PlanOptions options_;
  ExecutorChoice executor_;
  std::mutex mutex_;
  std::vector<TunedChoice> tuned_;
  Key wanted_;  // kept, so that looking a plan up allocates nothing
  std::unordered_map<Key, std::shared_ptr<const Ladder>, Hash> ladders_;  // sizes as proportions
  std::unordered_map<Key, std::shared_ptr<const PreparedPlan>, Hash> plans_;
};

}  // namespace polypath
