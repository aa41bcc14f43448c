// Plans with memory: ladders and schedules that were computed once are kept, because a program sends the
// same sizes over and over.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "exec/executor.hpp"
#include "plan/schedule.hpp"

namespace polypath {

/// A plan with its schedule; shared and never changed.
struct PreparedPlan {
  Plan plan;
  Schedule schedule;
  ExecutorKind executor = ExecutorKind::stream;
};

/// Thread-safe. What it returns does not depend on what it remembers.
class Planner {
 public:
  /// `node` must outlive it.
  Planner(const Node& node, PlanOptions options);

  /// The plan for `requests` without the staging memories of `without`, a set of bits: GPUs first, then
  /// host memories, by index.
  std::shared_ptr<const PreparedPlan> plan(std::span<const Request> requests,
                                           std::uint64_t without);

  /// The routes of each request that the maximum flow uses: what any size may need.
  std::vector<std::vector<Route>> widest(const std::vector<Request>& requests);

  /// The bit of a memory; 0 for memories past the 64th, which are never left out.
  [[nodiscard]] std::uint64_t bit(MemoryId memory) const noexcept;

  /// Forgets everything: the node's capacities have changed.
  void clear();

 private:
  struct Key {
    std::vector<Request> requests;
    std::uint64_t without = 0;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct Hash {
    std::size_t operator()(const Key& key) const noexcept;
  };

  std::shared_ptr<const Ladder> ladder(const Key& key);

  const Node& node_;
  PlanOptions options_;
  std::mutex mutex_;
  Key wanted_;  // kept, so that looking a plan up allocates nothing
  std::unordered_map<Key, std::shared_ptr<const Ladder>, Hash> ladders_;  // sizes as proportions
  std::unordered_map<Key, std::shared_ptr<const PreparedPlan>, Hash> plans_;
};

}  // namespace polypath
