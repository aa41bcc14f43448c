// The signals by which ranks run their parts of a schedule: rows of calls on this program's memory,
// whose streams take turns at random but for what the programs wait for. What a program fails to
// wait for, or tells too early, some row shows: each of the mutants is found.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <span>

#include "collectives/plan/rank_program.hpp"
#include "collectives/plan/schedule_builder.hpp"
#include "collectives/plan/schedules.hpp"
#include "collectives/schedule/signal_words.hpp"
#include "plan_inputs.hpp"
#include "reference_run.hpp"

namespace polypath {
namespace {

enum class Fault : std::uint8_t {
  none,
  no_credit_between_calls,  ///< scratch of a rank is written while its call before still uses it
  no_credit_for_slot,       ///< a slot is filled again without asking whether it was read
  no_wait_for_data,         ///< what another rank sends is not waited for
  early_signal,             ///< a step is told of before it is done
  no_event,                 ///< a step does not wait for one of another stream of its rank
  one_slot,                 ///< slots are not alternated
  no_meeting_before,        ///< a graph begins while another rank is in the call before
  no_meeting_behind,        ///< the call after a graph begins while another rank is in the graph
  epoch_not_counted,        ///< every launch of a graph tells what the first told
  no_shared_wait,           ///< a step does not wait for what another stream has waited for
};

using E = Elements<std::uint32_t>;

bool reads(const CollectiveSchedule& schedule, const Step& step, const Place& place) {
  return std::ranges::find(schedule.reads(step), place) != schedule.reads(step).end();
}

/// Takes dependencies between ranks out of the schedule.
void forget(CollectiveSchedule& schedule,
            const std::function<bool(const Step& before, const Step&)>& which) {
  for (Step& step : schedule.steps) {
    const auto waits = std::span(schedule.waits)
                           .subspan(static_cast<std::size_t>(step.after.first),
                                    static_cast<std::size_t>(step.after.count));
    const auto gone = std::ranges::remove_if(waits, [&](int other) {
      const Step& before = schedule.steps[static_cast<std::size_t>(other)];
      return before.rank != step.rank && which(before, step);
    });
    step.after.count -= static_cast<int>(gone.size());
  }
}

/// What a queue sends to a rank always lands in one place.
void use_one_slot(CollectiveSchedule& schedule) {
  std::map<std::pair<int, int>, std::uint64_t> first;            // by queue and receiver
  std::map<std::pair<int, std::uint64_t>, std::uint64_t> moved;  // by receiver and offset
  const auto move = [&](Place& from) {
    if (const auto to = moved.find({from.owner, from.offset});
        from.buffer == BufferKind::scratch && to != moved.end())
      from.offset = to->second;
  };
  for (Step& step : schedule.steps) {
    move(step.from);
    for (int i = 0; i < step.operands.count; ++i)
      move(schedule.operands[static_cast<std::size_t>(step.operands.first + i)]);
    if (step.to.buffer != BufferKind::scratch || step.to.owner == step.rank) continue;
    const std::uint64_t slot =
        first.try_emplace({step.queue, step.to.owner}, step.to.offset).first->second;
    moved[{step.to.owner, step.to.offset}] = slot;
    step.to.offset = slot;
  }
}

struct Call {
  CollectiveSchedule schedule;
  bool is_of_graph = false;
  std::vector<RankProgram> programs;
  std::vector<std::vector<std::uint32_t>> inputs;
  std::unique_ptr<ReferenceRun<E>> run;
};

void plant(Fault fault, CollectiveSchedule& schedule) {
  if (fault == Fault::one_slot) use_one_slot(schedule);
  if (fault == Fault::no_credit_for_slot)
    forget(schedule,
           [&](const Step& before, const Step& step) { return reads(schedule, before, step.to); });
  if (fault == Fault::no_wait_for_data)
    forget(schedule,
           [&](const Step& before, const Step& step) { return reads(schedule, step, before.to); });
}

void plant(Fault fault, RankProgram& program) {
  for (RankStep& step : program.steps) {
    if (fault == Fault::no_credit_between_calls) step.credits.clear();
    if (fault == Fault::no_event) step.after.clear();
  }
}

/// Which schedules a row has.
enum class Kind : std::uint8_t { any, host_part, by_owners, taken_twice };

/// All-gather in which two streams of a rank take what another rank sent, the second one for the
/// output: it waits for what the first one has waited for.
CollectiveSchedule taken_twice(const Node& node, const CollectiveRequest& request) {
  ScheduleBuilder builder(node, request, {"all-gather"});
  std::vector<std::uint64_t> slots;
  std::vector<std::uint64_t> others;
  for (int rank = 0; rank < request.ranks(); ++rank) {
    slots.push_back(builder.allot_scratch(request.count, /*partial=*/false));
    others.push_back(builder.allot_scratch(request.count, /*partial=*/false));
  }
  for (int from = 0; from < request.ranks(); ++from)
    for (int to = 0; to < request.ranks(); ++to) {
      const auto at = static_cast<std::size_t>(from);
      const Place input = builder.input(from, 0);
      const Place output = builder.output(to, at * request.count);
      const Place slot = ScheduleBuilder::scratch(to, slots[at]);
      const Place other = ScheduleBuilder::scratch(to, others[at]);
      if (from == to) {
        builder.copy(0, 0, input, output, request.count);
        continue;
      }
      builder.copy(0, 1, input, slot, request.count);
      builder.copy(0, 2, slot, other, request.count);
      builder.copy(0, 3, slot, output, request.count);
    }
  CollectiveSchedule schedule = std::move(builder).finish();
  schedule.waits_aside = true;
  return schedule;
}

CollectiveSchedule random_schedule(Random& random, const Node& node, Kind kind) {
  CollectiveRequest request;
  request.type = DataType::uint32;
  request.gpus.resize(4);
  std::iota(request.gpus.begin(), request.gpus.end(), 0);
  request.count = static_cast<std::uint64_t>(pick(random, 1, 1500));
  const auto chunk = static_cast<std::uint64_t>(pick(random, 128, 512));
  const std::vector<std::vector<int>> islands{{0, 1}, {2, 3}};
  const std::vector<int> ring{0, 1, 2, 3};
  if (kind == Kind::host_part) return host_part_schedule(node, request, chunk);
  if (kind == Kind::taken_twice) {
    request.op = CollectiveOp::all_gather;
    return taken_twice(node, request);
  }
  if (kind == Kind::by_owners) {
    request.op = random() % 2 == 0 ? CollectiveOp::all_gather : CollectiveOp::reduce_scatter;
    return hierarchical_schedule(node, request, islands, request.ranks(), chunk);
  }
  switch (pick(random, 0, 3)) {
    case 0: return hierarchical_schedule(node, request, islands, pick(random, 1, 2), chunk);
    case 1: return ring_schedule(node, request, ring, chunk);
    case 2: return host_part_schedule(node, request, chunk);
    default: return flat_schedule(node, request, chunk, /*by_host=*/false);
  }
}

std::vector<Call> random_row(Random& random, const Node& node, Fault fault, Kind kind) {
  std::vector<Call> calls;
  const int alike = pick(random, 0, 2);  // graphs, some graphs, none
  for (int i = 0; i < 4; ++i) {
    Call call;
    call.schedule = random_schedule(random, node, kind);
    call.is_of_graph = alike == 0 || (alike == 1 && random() % 2 == 0);
    plant(fault, call.schedule);
    for (int rank = 0; rank < 4; ++rank) {
      call.programs.push_back(program_of(call.schedule, rank));
      plant(fault, call.programs.back());
      const CollectiveRequest& request = call.schedule.request;
      auto& input = call.inputs.emplace_back(
          request.op == CollectiveOp::reduce_scatter ? request.elements() : request.count);
      for (auto& element : input) element = static_cast<std::uint32_t>(random());
    }
    calls.push_back(std::move(call));
  }
  for (Call& call : calls) {
    const CollectiveRequest& request = call.schedule.request;
    call.run = std::make_unique<ReferenceRun<E>>(
        node, call.schedule, call.inputs,
        request.op == CollectiveOp::all_gather ? request.elements() : request.count, false);
    if (&call != &calls.front()) call.run->share_scratch(*calls.front().run);
  }
  return calls;
}

/// The streams of one rank, over the calls of a row.
class Rank {
 public:
  using Words = std::vector<std::vector<std::uint64_t>>;  // [rank]

  Rank(int rank, std::vector<Call>& calls, Words& words, Fault fault)
      : rank_(rank), calls_(calls), words_(words), fault_(fault) {
    begin();
  }

  [[nodiscard]] bool done() const { return call_ == calls_.size(); }

  /// Lets a stream do one thing, if it may. `turn` says which.
  bool advance(Random& random) {
    if (done()) return false;
    if (meets_at_ != nullptr) return leave_meeting();
    std::vector<std::size_t> able;
    for (std::size_t stream = 0; stream < next_.size(); ++stream)
      if (may_go_on(stream)) able.push_back(stream);
    if (able.empty()) return false;
    go_on(able[random() % able.size()]);
    return true;
  }

 private:
  [[nodiscard]] const RankProgram& program() const {
    return calls_[call_].programs[static_cast<std::size_t>(rank_)];
  }
  [[nodiscard]] bool is_of_graph() const { return calls_[call_].is_of_graph; }
  /// The number among the calls of its kind.
  [[nodiscard]] std::uint64_t number() const {
    if (is_of_graph() && fault_ == Fault::epoch_not_counted) return 1;
    return numbers_.at(is_of_graph() ? 1 : 0);
  }
  [[nodiscard]] std::size_t word(std::uint64_t word) const {
    return is_of_graph() ? graph_word(4, word) : word;
  }
  using WordOf = std::uint64_t (*)(int ranks, int rank);

  void meet(WordOf where) {
    for (auto& words : words_) words[where(4, rank_)] = progress_value(number(), 0);
    meets_at_ = where;
  }
  bool leave_meeting() {
    const auto& own = words_[static_cast<std::size_t>(rank_)];
    for (int rank = 0; rank < 4; ++rank)
      if (own[meets_at_(4, rank)] < progress_value(number(), 0)) return false;
    if (std::exchange(meets_at_, nullptr) == begun_word) {
      end_if_done();
    } else {
      ++call_;
      begin();
    }
    return true;
  }

  void begin() {
    if (done()) return;
    ++numbers_.at(is_of_graph() ? 1 : 0);
    next_.assign(static_cast<std::size_t>(program().streams), 0);
    todo_.assign(next_.size(), {});
    is_done_.assign(program().steps.size(), false);
    for (std::size_t i = 0; i < program().steps.size(); ++i)
      todo_[static_cast<std::size_t>(program().steps[i].stream)].push_back(i);
    has_run_.assign(next_.size(), false);
    if (is_of_graph() && fault_ != Fault::no_meeting_before) return meet(begun_word);
    end_if_done();
  }

  /// Whether other ranks have told what the step waits for.
  bool has_heard(const RankStep& step) const {
    const auto& own = words_[static_cast<std::size_t>(rank_)];
    for (const int other : step.credits)
      if (!is_of_graph() && own[credit_word(other)] + 1 < number()) return false;
    return std::ranges::all_of(step.awaited, [&](const StreamProgress& progress) {
      return own[word(progress_word(4, progress.rank, progress.stream))] >=
             progress_value(number(), progress.steps);
    });
  }

  bool may_go_on(std::size_t stream) const {
    if (next_[stream] == todo_[stream].size()) return false;
    if (has_run_[stream]) return true;
    const RankStep& step = program().steps[todo_[stream][next_[stream]]];
    if (is_of_graph() || step.heard_by.empty()) {
      if (!has_heard(step)) return false;
    } else if (fault_ != Fault::no_shared_wait) {
      for (const std::size_t other : step.heard_by)
        if (!has_heard(program().steps[other])) return false;
    }
    return std::ranges::all_of(step.after, [&](std::size_t i) { return is_done_[i]; });
  }

  /// First the step, then what it tells; or the other way round.
  void go_on(std::size_t stream) {
    const std::size_t at = todo_[stream][next_[stream]];
    const RankStep& step = program().steps[at];
    if (has_run_[stream] == (fault_ == Fault::early_signal)) {
      calls_[call_].run->execute(
          calls_[call_].schedule.steps[static_cast<std::size_t>(step.index)]);
    } else {
      for (const StreamProgress& progress : step.signals)
        words_[static_cast<std::size_t>(progress.rank)]
              [word(progress_word(4, rank_, progress.stream))] =
                  progress_value(number(), progress.steps);
    }
    if (!has_run_[stream]) {
      has_run_[stream] = true;
      return;
    }
    is_done_[at] = true;
    has_run_[stream] = false;
    ++next_[stream];
    end_if_done();
  }

  void end_if_done() {
    for (std::size_t stream = 0; stream < next_.size(); ++stream)
      if (next_[stream] < todo_[stream].size()) return;
    if (is_of_graph()) {
      if (fault_ != Fault::no_meeting_behind) return meet(ended_word);
    } else {
      for (auto& words : words_) words[credit_word(rank_)] = number();
    }
    ++call_;
    begin();
  }

  int rank_;
  std::vector<Call>& calls_;
  Words& words_;
  Fault fault_;
  std::size_t call_ = 0;
  std::array<std::uint64_t, 2> numbers_{};      // of calls so far, and of launches of graphs
  WordOf meets_at_ = nullptr;                   // null: at none
  std::vector<std::size_t> next_;               // of each stream
  std::vector<std::vector<std::size_t>> todo_;  // of each stream: places of its steps
  std::vector<bool> has_run_;                   // of each stream: half of its step is done
  std::vector<bool> is_done_;                   // of each step
};

bool is_right(const Call& call) {
  const CollectiveRequest& request = call.schedule.request;
  std::vector<std::uint32_t> all(call.inputs.front().size(), 0);
  for (const auto& input : call.inputs)
    for (std::size_t i = 0; i < all.size(); ++i) all[i] += input[i];
  if (request.op == CollectiveOp::all_gather) {
    all.clear();
    for (const auto& input : call.inputs) all.insert(all.end(), input.begin(), input.end());
  }
  for (std::size_t rank = 0; rank < 4; ++rank) {
    std::span<const std::uint32_t> expected(all);
    if (request.op == CollectiveOp::reduce_scatter)
      expected = expected.subspan(rank * request.count, request.count);
    if (!std::ranges::equal(call.run->output(static_cast<int>(rank)), expected)) return false;
  }
  return true;
}

/// Whether a row gives what it should. Fails the test when no rank can go on.
bool row_is_right(std::uint64_t seed, Fault fault, Kind kind = Kind::any) {
  Random random(seed);
  const Node node = mesh_node();
  std::vector<Call> calls = random_row(random, node, fault, kind);
  Rank::Words words(4, std::vector<std::uint64_t>(all_word_count(4), 0));
  std::vector<Rank> ranks;
  for (int rank = 0; rank < 4; ++rank) ranks.emplace_back(rank, calls, words, fault);
  // One rank is ahead for a while, then another.
  std::size_t favourite = 0;
  while (!std::ranges::all_of(ranks, &Rank::done)) {
    if (random() % 256 == 0) favourite = random() % ranks.size();
    const std::size_t first = random() % 16 != 0 ? favourite : random() % ranks.size();
    bool went_on = false;
    for (std::size_t i = 0; i < ranks.size() && !went_on; ++i)
      went_on = ranks[(first + i) % ranks.size()].advance(random);
    if (!went_on) {
      EXPECT_NE(fault, Fault::none) << "nobody can go on, seed " << seed;
      return false;
    }
  }
  return std::ranges::all_of(calls, is_right);
}

TEST(RankPrograms, RowsOfCallsAreRightInAnyOrder) {
  for (std::uint64_t seed = 0; seed < 60; ++seed)
    for (const Kind kind : {Kind::any, Kind::host_part, Kind::by_owners, Kind::taken_twice})
      ASSERT_TRUE(row_is_right(seed, Fault::none, kind)) << "seed " << seed;
}

/// Few rows show it: a rank must be one call late.
bool is_between_calls(Fault fault) {
  return fault == Fault::no_credit_between_calls || fault == Fault::no_meeting_before ||
         fault == Fault::no_meeting_behind;
}

TEST(RankPrograms, SharedWaits_AreNeeded) {
  int failures = 0;
  for (std::uint64_t seed = 0; seed < 72; ++seed)
    failures += row_is_right(seed, Fault::no_shared_wait, Kind::taken_twice) ? 0 : 1;
  EXPECT_GE(failures, 3);
}

class ProgramMutants : public testing::TestWithParam<std::pair<Fault, const char*>> {};

TEST_P(ProgramMutants, MakesRunsFail) {
  const std::uint64_t rows = is_between_calls(GetParam().first) ? 400 : 72;
  for (const Kind kind : {Kind::any, Kind::by_owners}) {
    int failures = 0;
    for (std::uint64_t seed = 0; seed < rows; ++seed)
      failures += row_is_right(seed, GetParam().first, kind) ? 0 : 1;
    EXPECT_GE(failures, 3) << "kind " << static_cast<int>(kind);
  }
}

/// Where sums go through host memory, among them: a slot of it that is filled before all have read
/// it, by the same call or by the next; what went down told of too early, or not waited for.
TEST_P(ProgramMutants, MakesHostPartsFail) {
  const Fault fault = GetParam().first;
  if (fault == Fault::one_slot) GTEST_SKIP() << "its slots of scratch take turns by chunks";
  if (is_between_calls(fault))
    GTEST_SKIP() << "a sum needs something of all ranks, which have ended the call before";
  int failures = 0;
  for (std::uint64_t seed = 0; seed < 24; ++seed)
    failures += row_is_right(seed, fault, Kind::host_part) ? 0 : 1;
  EXPECT_GE(failures, 3);
}

INSTANTIATE_TEST_SUITE_P(
    All, ProgramMutants,
    testing::Values(std::pair(Fault::no_credit_between_calls, "NoCreditBetweenCalls"),
                    std::pair(Fault::no_credit_for_slot, "NoCreditForSlot"),
                    std::pair(Fault::no_wait_for_data, "NoWaitForData"),
                    std::pair(Fault::early_signal, "EarlySignal"),
                    std::pair(Fault::no_event, "NoEvent"), std::pair(Fault::one_slot, "OneSlot"),
                    std::pair(Fault::no_meeting_before, "NoMeetingBeforeAGraph"),
                    std::pair(Fault::no_meeting_behind, "NoMeetingBehindAGraph"),
                    std::pair(Fault::epoch_not_counted, "EpochNotCounted")),
    [](const auto& param_info) { return std::string(param_info.param.second); });

/// A rank's part as a graph of which the GPU runs one node at a time, in any order that its edges
/// allow: a node that waits for another rank keeps it from all others.
class SerialRank {
 public:
  SerialRank(const RankProgram& program,
             std::map<std::tuple<int, int, int>, std::uint64_t>& signalled)
      : program_(program), told_(signalled), next_(static_cast<std::size_t>(program.streams), 0) {
    todo_.resize(next_.size());
    for (std::size_t i = 0; i < program.steps.size(); ++i)
      todo_[static_cast<std::size_t>(program.steps[i].stream)].push_back(i);
    state_.assign(program.steps.size(), State::idle);
  }

  [[nodiscard]] bool done() const {
    return std::ranges::all_of(state_, [](State state) { return state == State::signalled; });
  }

  /// False: it waits for another rank.
  bool advance(Random& random) {
    if (!waiting_) {
      std::vector<std::size_t> able;
      for (std::size_t stream = 0; stream < next_.size(); ++stream)
        if (next_[stream] < todo_[stream].size() && may_run(todo_[stream][next_[stream]]))
          able.push_back(todo_[stream][next_[stream]]);
      if (able.empty()) return false;
      run(able[random() % able.size()]);
      return true;
    }
    for (const StreamProgress& progress : program_.steps[*waiting_].awaited)
      if (told_[{progress.rank, progress.stream, program_.rank}] < progress.steps) return false;
    state_[*std::exchange(waiting_, std::nullopt)] = State::released;
    return true;
  }

 private:
  enum class State : std::uint8_t { idle, released, done, signalled };

  [[nodiscard]] bool may_run(std::size_t at) const {
    const RankStep& step = program_.steps[at];
    if (state_[at] == State::idle)  // its wait
      return std::ranges::all_of(step.behind,
                                 [&](std::size_t i) { return state_[i] == State::signalled; });
    if (state_[at] == State::released)
      return std::ranges::all_of(step.after,
                                 [&](std::size_t i) { return state_[i] >= State::done; });
    return true;
  }

  void run(std::size_t at) {
    const RankStep& step = program_.steps[at];
    switch (state_[at]) {
      case State::idle:
        if (step.awaited.empty())
          state_[at] = State::released;
        else
          waiting_ = at;
        break;
      case State::released: state_[at] = State::done; break;
      case State::done:
        for (const StreamProgress& progress : step.signals)
          told_[{program_.rank, progress.stream, progress.rank}] = progress.steps;
        state_[at] = State::signalled;
        ++next_[static_cast<std::size_t>(step.stream)];
        break;
      case State::signalled: break;
    }
  }

  const RankProgram& program_;
  std::map<std::tuple<int, int, int>, std::uint64_t>& told_;  // sender, stream, receiver: steps
  std::vector<std::size_t> next_;                             // of each stream
  std::vector<std::vector<std::size_t>> todo_;
  std::vector<State> state_;
  std::optional<std::size_t> waiting_;
};

bool serial_graphs_end(std::uint64_t seed, bool without_behind) {
  Random random(seed);
  const CollectiveSchedule schedule =
      random_schedule(random, mesh_node(), seed % 2 == 0 ? Kind::any : Kind::host_part);
  std::vector<RankProgram> programs;
  for (int rank = 0; rank < 4; ++rank) {
    programs.push_back(program_of(schedule, rank));
    if (without_behind)
      for (RankStep& step : programs.back().steps) step.behind.clear();
  }
  std::map<std::tuple<int, int, int>, std::uint64_t> signalled;
  std::vector<SerialRank> ranks;
  for (const RankProgram& program : programs) ranks.emplace_back(program, signalled);
  while (!std::ranges::all_of(ranks, &SerialRank::done)) {
    const std::size_t first = random() % ranks.size();
    bool went_on = false;
    for (std::size_t i = 0; i < ranks.size() && !went_on; ++i)
      went_on = ranks[(first + i) % ranks.size()].advance(random);
    if (!went_on) return false;
  }
  return true;
}

TEST(RankPrograms, GraphsEndInAnyOrderThatTheirEdgesAllow) {
  int stuck = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    EXPECT_TRUE(serial_graphs_end(seed, false)) << "seed " << seed;
    stuck += serial_graphs_end(seed, true) ? 0 : 1;
  }
  EXPECT_GE(stuck, 3);  // without the edges that are there for this
}

TEST(RankPrograms, AwaitedProgress_IsPublished) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Random random(seed);
    const CollectiveSchedule schedule = random_schedule(random, mesh_node(), Kind::any);
    std::set<std::tuple<int, int, int, std::uint64_t>> signals;  // sender, stream, receiver, steps
    for (int rank = 0; rank < 4; ++rank)
      for (const RankStep& step : program_of(schedule, rank).steps)
        for (const StreamProgress& progress : step.signals)
          signals.insert({rank, progress.stream, progress.rank, progress.steps});
    for (int rank = 0; rank < 4; ++rank)
      for (const RankStep& step : program_of(schedule, rank).steps)
        for (const StreamProgress& progress : step.awaited)
          EXPECT_TRUE(signals.contains({progress.rank, progress.stream, rank, progress.steps}));
  }
}

}  // namespace
}  // namespace polypath
