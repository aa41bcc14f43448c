// Plans with memory: what was computed is kept, because a program sends the same sizes over and
// over. A thread that issues a transfer never waits for more than the plan of one size on known
// route sets.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_set>
#include <vector>

#include "plan/lru_map.hpp"
#include "plan/plan_maker.hpp"

namespace polypath {

/// Thread-safe. What plan() returns depends on the inputs alone. So does what serve() returns, but
/// for plans marked provisional, which serve while another thread computes. No lock is held while
/// anything is computed.
class Planner {
 public:
  /// Has the task carried out by another thread, and returns at once; false: it will not be.
  using Later = std::function<bool(std::function<void()>)>;

  /// Without `later` serve() computes as plan() does. The planner must outlive the tasks.
  Planner(PlanInputs inputs, Later later);

  /// The plan for `requests` without the staging memories of `without`, a set of bits (bit()),
  /// computed on the calling thread if it is not known. `concurrent`: other transfers at the same
  /// time, as large as the first request; they are planned together, so that the same transfers
  /// have the same shares in each plan, and then left out. Those that share no link and no port
  /// with a request do not count.
  std::shared_ptr<const PreparedPlan> plan(std::span<const Request> requests, std::uint64_t without,
                                           std::span<const Request> concurrent = {});

  /// The same plan where it is known, or cheap to make from known route sets. Otherwise another
  /// thread computes it, and what is returned is provisional: next to others the plan for being
  /// alone, else the native copies.
  std::shared_ptr<const PreparedPlan> serve(std::span<const Request> requests,
                                            std::uint64_t without,
                                            std::span<const Request> concurrent = {});

  /// Has `then` called with plan(request), at once where it is known, otherwise by another thread.
  void plan_later(const Request& request, std::function<void(const PreparedPlan&)> then);

  /// As long as it lives serve() computes as plan() does: for benchmarks, which name what they run.
  class Exact {
   public:
    explicit Exact(Planner& planner) : planner_(planner) { ++planner_.exact_; }
    ~Exact() { --planner_.exact_; }
    Exact(const Exact&) = delete;
    Exact& operator=(const Exact&) = delete;

   private:
    Planner& planner_;
  };

  /// A copy of plan() for people: with its reasons, and the limit for exactly these sizes.
  Plan explained(const std::vector<Request>& requests);

  /// The routes of each request that the maximum flow uses: what any size may need.
  std::vector<std::vector<Route>> widest(const std::vector<Request>& requests);

  /// The bit of a memory; 0 for memories past the 64th, which are never left out.
  [[nodiscard]] std::uint64_t bit(MemoryId memory) const;

  /// Forgets everything: the node's capacities have changed.
  void use(const Node& node);
  /// From now on plans follow these choices where one applies: all kinds of routes are allowed, and
  /// the settings leave routes and chunks to the planner.
  void use(std::vector<TunedTransfer> tuned);

  /// The plan that follows `choice`, or nothing where it does not fit.
  std::shared_ptr<const PreparedPlan> plan_of(const std::vector<Request>& requests,
                                              const TransferConfig& choice, ExecutorKind executor);
  /// The cost model's own plan, without tuned choices.
  std::shared_ptr<const PreparedPlan> model_plan(const std::vector<Request>& requests,
                                                 ExecutorKind executor);
  /// The cost model's own plans of every route set, widest first, without tuned choices.
  std::vector<Plan> plans_per_route_set(const std::vector<Request>& requests);
  /// How much was computed since the beginning, and by which threads.
  struct Counts {
    std::uint64_t route_sets_in_serve = 0;  ///< by callers of serve(); without Exact none
    std::uint64_t plans_in_serve = 0;       ///< of known route sets
    std::uint64_t later = 0;                ///< by tasks of `later`
    std::size_t kept_plans = 0;
    std::size_t kept_copies = 0;  ///< of the kept plans' schedules
    std::size_t kept_route_sets = 0;
  };
  [[nodiscard]] Counts counts() const;

 private:
  struct View {
    std::span<const Request> requests;
    std::uint64_t without = 0;
    std::span<const Request> concurrent = {};
    static View from(const PlanKey& key) { return {key.requests, key.without, key.concurrent}; }
    [[nodiscard]] PlanKey key() const;
  };
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(const View& key) const noexcept;
    std::size_t operator()(const PlanKey& key) const noexcept { return (*this)(View::from(key)); }
  };
  struct Equal {
    using is_transparent = void;
    bool operator()(const View& a, const View& b) const noexcept;
    bool operator()(const PlanKey& a, const View& b) const noexcept {
      return (*this)(View::from(a), b);
    }
    bool operator()(const View& a, const PlanKey& b) const noexcept {
      return (*this)(a, View::from(b));
    }
    bool operator()(const PlanKey& a, const PlanKey& b) const noexcept { return a == b; }
  };
  template <typename Value>
  using Memory = LruMap<PlanKey, std::shared_ptr<const Value>, Hash, Equal>;
  using Links = std::vector<bool>;  ///< of a pair: which links and ports some route of it passes

  /// Inputs with what follows from them alone; never changed.
  struct State {
    PlanInputs inputs;
    std::vector<Links> links;  ///< [source * memories + destination]
    [[nodiscard]] bool share(const Request& a, const Request& b) const;
  };
  using StatePtr = std::shared_ptr<const State>;

  static StatePtr make_state(PlanInputs inputs);
  [[nodiscard]] StatePtr state() const;
  void set_state(PlanInputs inputs, bool with_route_sets);
  std::vector<Request> relevant_transfers(const State& state, std::span<const Request> requests,
                                          std::span<const Request> concurrent) const;
  std::shared_ptr<const PreparedPlan> known(const View& key);
  std::shared_ptr<const RouteSets> known_route_sets(const PlanKey& route_sets_key);
  std::shared_ptr<const RouteSets> route_sets(const StatePtr& state, const PlanKey& route_sets_key,
                                              bool in_serve);
  PlanMaker maker(const StatePtr& state, bool in_serve);
  std::shared_ptr<const PreparedPlan> keep(const StatePtr& state, const PlanKey& key,
                                           std::shared_ptr<const PreparedPlan> plan);
  /// Null where that takes too long on a caller's thread.
  std::shared_ptr<const PreparedPlan> cheap(const StatePtr& state, const PlanKey& key);
  void compute_later(PlanKey key);

  Later later_;
  std::atomic<int> exact_{0};
  std::atomic<std::uint64_t> route_sets_in_serve_{0};
  std::atomic<std::uint64_t> plans_in_serve_{0};
  std::atomic<std::uint64_t> computed_later_{0};
  mutable std::mutex mutex_;  // for what follows; held for a look or an insertion
  StatePtr state_;
  Memory<RouteSets> kept_route_sets_;
  Memory<PreparedPlan> plans_;
  std::unordered_set<PlanKey, Hash, Equal> pending_;
};

}  // namespace polypath
