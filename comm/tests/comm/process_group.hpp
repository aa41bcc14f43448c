// Ranks for tests that are processes of their own: this program once more, on the simulated node in
// functional mode or on GPUs. A program that uses it links comm_processes, which has its main().
//
//   RANK_PROGRAM(adds_up) {                       // runs in each process; `self` is the rank
//     Communicator comm = ...(self.driver(), self.node(), self.options());
//     self.reached("created");                    // goes on when the test says so
//   }
//   TEST(Mine, AddsUp) {
//     ProcessGroup group("adds_up", 4);
//     group.wait_for(2, "created");
//     group.kill(2);
//     group.go(0); ...
//     EXPECT_EQ("", group.result(0));             // or what it threw
//   }
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "group.hpp"

namespace polypath::test {

/// One rank, in its process.
class RankProcess {
 public:
  RankProcess(int rank, int size);

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] const NodeSource& source() const { return group_node(); }
  /// For a communicator of all ranks, with GPU r for rank r, over sockets.
  [[nodiscard]] CommunicatorOptions options() const;
  /// By `driver`; null: the node's.
  std::unique_ptr<Communicator> create(std::shared_ptr<const CudaDriver> driver = nullptr) const;
  /// Tells the test, and waits for its word to go on.
  void reached(const std::string& stage) const;
  /// Whether POLYPATH_TEST_STAGE names it: where rank 1 is killed.
  static bool ends_at(const std::string& stage);
  /// There rank 1 has reached "its end".
  void at(const std::string& stage) const;
  /// at() where all ranks must have come before rank 1 is killed; they go on after it.
  void all_at(const std::string& stage) const;

 private:
  int rank_;
  int size_;
};

using RankProgram = void (*)(const RankProcess& self);
bool add_rank_program(const char* name, RankProgram program);

// A function of its own for each program, found by its name.
#define RANK_PROGRAM(name)                                                                \
  static void run_##name(const ::polypath::test::RankProcess& self);                      \
  static const bool added_##name = ::polypath::test::add_rank_program(#name, run_##name); \
  static void run_##name([[maybe_unused]] const ::polypath::test::RankProcess& self)

class ProcessGroup {
 public:
  /// Starts the program `name` as `size` processes.
  ProcessGroup(const std::string& name, int size);
  /// Ends those that still run.
  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  /// Until the rank has come to `stage`; throws when it ends instead.
  void wait_for(int rank, const std::string& stage);
  void go(int rank);
  /// Both, for all ranks.
  void pass(const std::string& stage);
  /// At once, with nothing released.
  void kill(int rank);
  /// Waits for its end. What it threw, or how it ended; empty when all went well.
  std::string result(int rank);

 private:
  struct Child {
    pid_t pid = 0;
    int to = -1;
    int from = -1;
    std::string text;  // read, not yet taken
  };
  Child& child(int rank) { return children_.at(static_cast<std::size_t>(rank)); }
  static bool read_line(Child& child, std::string& line);

  std::vector<Child> children_;
};

/// All ranks end well; before the program is started.
void expect_all_well(ProcessGroup& group, int size);
void expect_all_well(const std::string& name, int size);
/// Rank 1 of a program is killed at `stage`. What the others say; empty for rank 1. `held`: ranks
/// that go on from what they have reached once rank 1 is dead.
std::vector<std::string> results_of_kill(const std::string& name, int size,
                                         const std::string& stage,
                                         const std::vector<int>& held = {});
/// For names of tests: letters of a stage, with "_" for what is none.
std::string as_name(std::string text);

}  // namespace polypath::test
