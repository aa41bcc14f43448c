// Ranks for tests: threads of this process, on the simulated node that POLYPATH_NODE names or on
// this machine's GPUs.
//
//   Group group(4);
//   group.run([](Communicator& comm) { ... });   // on each rank at once, on a thread of its own
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/rank_threads.hpp"
#include "core/node_source.hpp"

namespace polypath::test {

/// The node of this process; throws NoDevice where there is none.
const NodeSource& group_node();

/// Whether it is a simulated one, timed in virtual time.
bool in_virtual_time();
/// GPUs of that node, up to `most`; 0 where there is none.
int gpus_up_to(int most);

/// In the body of a test: skips it on a node with fewer.
#define NEEDS_GPUS(count) \
  if (::polypath::test::gpus_up_to(count) < (count)) GTEST_SKIP() << "needs " #count " GPUs"

struct GroupOptions {
  std::chrono::milliseconds time_limit = std::chrono::minutes(5);
  std::vector<int> gpus = {};                          ///< by rank; empty: GPU r for rank r
  std::shared_ptr<const CudaDriver> driver = nullptr;  ///< null: the node's
  Context* engine = nullptr;
  /// Alters the options of a rank before its communicator is made.
  std::function<void(CommunicatorOptions&)> alter = {};
  /// Alters what a rank knows of the node.
  std::function<void(int rank, Node&)> alter_node = {};
};

/// As exceptions_on_rank_threads(): what each rank threw, as text; empty for those that did not.
std::vector<std::string> failures_on_threads(int size, const std::function<void(int rank)>& body);

class Group {
 public:
  /// Throws what the creation throws.
  explicit Group(int size, const GroupOptions& options = {});
  /// Returns when nothing of it is left: no release in the background takes part in what follows.
  ~Group();

  [[nodiscard]] int size() const noexcept { return static_cast<int>(ranks_.size()); }
  [[nodiscard]] Communicator& operator[](int rank) {
    return *ranks_.at(static_cast<std::size_t>(rank));
  }
  /// Calls `body` for each rank at once, with the context of the rank's GPU current; throws what
  /// the first rank threw that threw.
  void run(const std::function<void(Communicator&)>& body);
  /// The same; gives what each rank threw.
  std::vector<std::string> failures(const std::function<void(Communicator&)>& body);
  /// Destroys that of one rank.
  void destroy(int rank) { ranks_.at(static_cast<std::size_t>(rank)).reset(); }

 private:
  std::vector<Node> nodes_;
  std::vector<std::unique_ptr<Communicator>> ranks_;
};

}  // namespace polypath::test
