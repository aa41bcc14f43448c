// Runs a rank's part of a schedule: copies by copy engines, sums by kernels, on streams of its own
// that fork from `stream` of the call and join it again; signals to other ranks and waits for
// theirs between (rank_program.hpp, signal_words.hpp).
//
// Copies go to this rank's output or to symmetric scratch, so any memory of the GPU will do. No
// deadlock: every rank issues its steps in the order of the list, and a step waits for earlier ones
// of the list and for earlier calls alone; so it goes on even where streams share hardware queues.
// What runs next to the steps is issued before them, and waits for its equals on other ranks alone.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "collectives/kernel_modules.hpp"
#include "collectives/plan/rank_program.hpp"
#include "collectives/schedule/signal_words.hpp"
#include "comm/communicator.hpp"

namespace polypath {

class ScheduleRunner {
 public:
  /// Buffers of a call, as CollectiveCall has them.
  struct Call {
    Operator operation = Operator::sum;
    CUdeviceptr send = 0;
    CUdeviceptr recv = 0;
  };

  /// Collective. `communicator` and `modules` must outlive it. Throws what Communicator::alloc()
  /// throws.
  /// `host_bytes` of each host memory, 0 for none: where they are not to be had, schedules that go
  /// through host memory are not run.
  ScheduleRunner(Communicator& communicator, const KernelModules& modules,
                 std::uint64_t scratch_bytes, std::uint64_t host_bytes);
  /// Work that uses it must have completed.
  ~ScheduleRunner() = default;
  ScheduleRunner(const ScheduleRunner&) = delete;
  ScheduleRunner& operator=(const ScheduleRunner&) = delete;

  /// Whether there are words, scratch and host memory enough; the same on all ranks.
  [[nodiscard]] bool can_run(const CollectiveSchedule& schedule) const;

  /// Issues `program` on streams of its own, after all that is on `stream`, which goes on after
  /// all of it; meanwhile the stream runs what `concurrent` issues, which may wait for the same on
  /// other ranks. All ranks run the same schedules in the same order, one after another on each.
  /// Not in capture. The context is current. When a step cannot be issued, the communicator is
  /// aborted before the error is thrown: others would wait for it.
  void run(const CollectiveSchedule& schedule, const RankProgram& program, const Call& call,
           CUstream stream, const std::function<void()>& concurrent);
  /// In capture: a graph that may be launched again and again, one launch after another on each
  /// rank, and in the same order among their calls. `concurrent` as of run().
  void capture(const CollectiveSchedule& schedule, const RankProgram& program, const Call& call,
               CUstream stream, const std::function<void()>& concurrent);

  [[nodiscard]] std::uint64_t scratch_bytes() const noexcept { return scratch_.bytes(); }
  /// The size in each host memory; the ranks share it.
  [[nodiscard]] std::uint64_t host_bytes() const noexcept { return host_ ? host_->bytes() : 0; }

 private:
  /// What comes before or after the rank's step of that place in the program, on its stream.
  using AtStep = std::function<void(std::size_t, CUstream)>;
  void issue(const CollectiveSchedule& schedule, const RankProgram& program, const Call& call,
             CUstream stream, const std::function<void()>& concurrent);
  [[nodiscard]] CUdeviceptr address_of(const Place& place, const Call& call) const;
  void issue_graph(const CollectiveSchedule& schedule, RankProgram program, const Call& call,
                   CUstream stream, const std::function<void()>& concurrent);
  /// The steps, each between `wait` and `signal`, which are for other ranks.
  void issue_steps(const CollectiveSchedule& schedule, const RankProgram& program, const Call& call,
                   const AtStep& wait, const AtStep& signal);
  void issue_waits(const RankStep& step, std::uint64_t number, CUstream stream);
  /// For what other steps have waited for aside, in this call.
  void wait_for_others(const RankStep& step, CUstream stream);
  void issue_step(const CollectiveSchedule& schedule, const Step& step, const Call& call,
                  CUstream stream);
  /// Lets streams begin after the event of the fork, and `stream` go on after them.
  void fork(std::vector<Stream>& streams, int count);
  void join(int count, CUstream stream);
  /// Calls `issue`; aborts when it throws.
  void issue_or_abort(const std::function<void()>& issue);
  /// In a graph: by a kernel, with the values of its epoch.
  void tell_in_graph(const RankStep& step, CUstream stream);
  void wait_in_graph(const RankStep& step, CUstream stream);
  /// All ranks come there; `word_of` a rank.
  void meet_in_graph(std::uint64_t (*word_of)(int ranks, int rank), bool begins, CUstream stream);
  void issue_copy(const Step& step, const Call& call, CUstream stream) const;
  void issue_sum(const CollectiveSchedule& schedule, const Step& step, const Call& call,
                 CUstream stream) const;
  void tell(int rank, std::uint64_t word, std::uint64_t value, CUstream stream);
  Event& event(std::vector<Event>& events, std::size_t at);
  Stream& stream(std::vector<Stream>& streams, int at);

  Communicator& comm_;
  const KernelModules& modules_;
  SymmetricMemory scratch_;
  SymmetricMemory words_;
  std::shared_ptr<const SharedHostMemory> host_;  // null: none
  std::vector<Stream> streams_;
  std::vector<Stream> waiting_;  // of each of those, for waits aside
  std::vector<Event> done_;      // of steps
  std::vector<Event> came_;      // what they wait for aside
  std::vector<Event> told_;      // after signals of a graph
  std::vector<Event> ends_;      // of streams
  Event fork_;
  std::uint64_t calls_ = 0;
};

}  // namespace polypath
