// Collectives of several nodes, for tests: ranks are threads of this process, on GPUs of this node
// that is taken for several; between them messages of this process, or what stands in for NCCL.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <chrono>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "call_rows.hpp"
#include "collectives/multi_node_collectives.hpp"
#include "comm/thread_bootstrap.hpp"
#include "driver/check.hpp"
#include "group.hpp"
#include "mail.hpp"

namespace polypath::test {

/// So that the scratch is small.
inline constexpr CollectivesOptions kSmall{.max_blocks = 8, .check = false};

/// Names of the ranks' nodes, a letter each.
inline std::vector<std::vector<std::uint32_t>> nodes_of(std::string_view names) {
  std::vector<std::vector<std::uint32_t>> nodes;
  std::string seen;
  for (std::uint32_t rank = 0; rank < names.size(); ++rank) {
    std::size_t at = seen.find(names[rank]);
    if (at == std::string::npos) {
      at = seen.size();
      seen += names[rank];
      nodes.emplace_back();
    }
    nodes[at].push_back(rank);
  }
  return nodes;
}

inline constexpr std::chrono::seconds kCreationLimit{20};
/// The tolerance of waits that must end by the limit; a thread of a busy machine may be late.
inline constexpr std::chrono::milliseconds kSoon{2000};

struct NodeGroupOptions {
  std::chrono::milliseconds time_limit = std::chrono::minutes(5);
  bool progress_in_caller = false;
  bool by_nccl = false;
  std::uint64_t max_slice = kMaxNodeSlice;
  SumOrder order = SumOrder::rank;
  std::shared_ptr<const CudaDriver> driver = nullptr;  ///< null: the node's
};

/// So that small messages have many chunks.
inline constexpr std::uint64_t kSmallSlice = 64 << 10;

/// A rank's communicator and collectives.
struct NodeRank {
  MultiNodeRank state;
  std::optional<Collectives> inside;
  std::optional<MultiNodeCollectives> across;
};

class NodeGroup {
 public:
  explicit NodeGroup(const std::string& names, const NodeGroupOptions& options = {}) {
    for (std::size_t i = 0; i < names.size(); ++i) ranks_.push_back(std::make_unique<NodeRank>());
    const NodeSource& source = group_node();
    const int size = static_cast<int>(names.size());
    // That of the group is for its calls: a busy machine takes longer to make communicators.
    const auto limit = std::max<std::chrono::milliseconds>(options.time_limit, kCreationLimit);
    const auto exchanges = thread_exchanges(size, limit);
    failures_ = failures_on_threads(size, [&](int rank) {
      const auto at = static_cast<std::size_t>(rank);
      CommunicatorOptions rank_options;
      rank_options.rank = rank;
      rank_options.size = size;
      rank_options.gpu = rank;
      rank_options.exchange = exchanges[at];
      rank_options.time_limit = limit;
      NodeRank& node_rank = *ranks_[at];
      const polypath_network network = mail_.network(rank, options.progress_in_caller);
      node_rank.state = create_across_nodes(
          options.driver ? options.driver : source.driver, source.node, rank_options,
          options.by_nccl ? nccl_network() : network, std::string(1, names[at]));
      CollectivesOptions inside = kSmall;
      inside.order = options.order;
      node_rank.inside.emplace(*node_rank.state.local, inside);
      if (node_rank.state.links)
        node_rank.across.emplace(*node_rank.inside, *node_rank.state.links, options.max_slice);
      node_rank.state.local->exchange({}, {});
      node_rank.state.local->set_time_limit(options.time_limit);
    });
  }

  [[nodiscard]] Mail& mail() { return mail_; }
  /// The errors of the creation, by rank.
  [[nodiscard]] const std::vector<std::string>& failures_of_creation() const { return failures_; }
  NodeRank& operator[](int rank) { return *ranks_.at(static_cast<std::size_t>(rank)); }
  void destroy(int rank) { ranks_.at(static_cast<std::size_t>(rank)).reset(); }
  /// The errors of `body`, on all ranks at once, with their contexts.
  std::vector<std::string> failures(const std::function<void(NodeRank&, int)>& body) {
    return failures_on_threads(static_cast<int>(ranks_.size()), [&](int rank) {
      NodeRank& node_rank = (*this)[rank];
      const CurrentContext current(node_rank.state.local->driver(),
                                   node_rank.state.local->context());
      body(node_rank, rank);
    });
  }

 private:
  Mail mail_;  // outlives the ranks
  std::vector<std::unique_ptr<NodeRank>> ranks_;
  std::vector<std::string> failures_;
};

/// Whose creation has succeeded; else it throws.
class CreatedGroup : public NodeGroup {
 public:
  explicit CreatedGroup(const std::string& names, const NodeGroupOptions& options = {})
      : NodeGroup(names, options) {
    for (const std::string& failure : failures_of_creation())
      if (!failure.empty()) throw Error(failure);
  }
};

/// An allreduce in place, with a stream for it.
struct CallInPlace {
  CallInPlace(const NodeRank& rank, std::uint64_t floats)
      : memory(rank.state.local->driver(), floats * sizeof(float)),
        stream(rank.state.local->driver(), rank.state.local->context()) {
    call.count = floats;
    call.send = call.recv = memory.address();
  }
  DeviceBytes memory;
  Stream stream;
  CollectiveCall call;
};

/// As polypath_comm_synchronize().
inline void synchronize(const NodeRank& rank, CUstream stream) {
  const Communicator& local = *rank.state.local;
  if (rank.state.links)
    while (local.driver().stream_query(stream) == CUDA_ERROR_NOT_READY &&
           rank.state.links->engine->progress())
      std::this_thread::sleep_for(std::chrono::microseconds(50));
  POLYPATH_CHECK(local.driver(), stream_synchronize(stream));
  local.check();
}

/// Runs rows of calls on all ranks, on two streams in turn, and compares every byte.
inline void run_rows(NodeGroup& group, const std::vector<PlannedCall>& calls) {
  const auto failures = group.failures([&](NodeRank& rank, int number) {
    const CudaDriver& driver = rank.state.local->driver();
    const CallRow row(driver, calls, number);
    const std::array streams{Stream(driver, rank.state.local->context()),
                             Stream(driver, rank.state.local->context())};
    for (std::size_t i = 0; i < calls.size(); ++i)
      rank.across->run(row.call(calls, i), streams[i % 2].get());
    for (const Stream& stream : streams) synchronize(rank, stream.get());
    row.expect_done(calls);
  });
  EXPECT_THAT(failures, testing::Each(""));
}

inline CollectiveCase case_of(CollectiveOp op, DataType type, std::uint64_t count,
                              std::uint32_t ranks, const std::string& names) {
  CollectiveCase what;
  what.op = op;
  what.type = type;
  what.count = count;
  what.ranks = ranks;
  what.root = ranks - 1;
  what.nodes = nodes_of(names);
  return what;
}

}  // namespace polypath::test
