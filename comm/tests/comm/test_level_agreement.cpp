// All interleavings of ranks that agree on levels (comm/level_agreement.hpp): a model checker that
// runs the product's code, one access to shared memory at a time. Mutants prove that it would find
// what is wrong.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <barrier>
#include <deque>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "comm/level_agreement.hpp"

namespace polypath::test {
namespace {

constexpr int kMaxRanks = 3;
constexpr std::uint64_t kMaxCalls = 7;

/// An access to shared memory.
struct Access {
  enum class Kind : std::uint8_t { none, load_record, set_record, swap_record, load_issued, store };
  Kind kind = Kind::none;
  int rank = 0;
  std::uint64_t expected = 0;
  std::uint64_t value = 0;
};

/// Gives a procedure the results of the accesses that it has made so far, and stops it at the next
/// one: what it does after that has no effect, and ends soon.
class ScriptedWords {
 public:
  explicit ScriptedWords(const std::vector<std::uint64_t>& results) : results_(results) {}

  std::uint64_t record() { return take({Access::Kind::load_record}); }
  void set_record(std::uint64_t word) { take({Access::Kind::set_record, 0, 0, word}); }
  bool exchange_record(std::uint64_t& expected, std::uint64_t word) {
    const std::uint64_t old = expected;
    const std::uint64_t current = take({Access::Kind::swap_record, 0, old, word});
    if (next_.kind != Access::Kind::none) return true;
    expected = current;
    return current == old;
  }
  std::uint64_t issued(int rank) { return take({Access::Kind::load_issued, rank}); }
  void set_issued(int rank, std::uint64_t call) { take({Access::Kind::store, rank, 0, call}); }

  /// None: the procedure has ended.
  [[nodiscard]] const Access& next() const { return next_; }

 private:
  std::uint64_t take(const Access& access) {
    if (next_.kind != Access::Kind::none) return 0;
    if (at_ < results_.size()) return results_[at_++];
    next_ = access;
    return 0;
  }

  const std::vector<std::uint64_t>& results_;
  std::size_t at_ = 0;
  Access next_;
};

using Agreement = LevelAgreement<ScriptedWords>;

struct Rank {
  enum class Doing : std::uint8_t { nothing, call, proposal };
  Agreement agreement{0, 0};  // before what it is doing
  Doing doing = Doing::nothing;
  bool has_proposed = false;  // since its latest call
  std::uint8_t proposed = 0;
  std::uint64_t calls = 0;              // that have ended
  std::vector<std::uint64_t> results;   // of what it is doing
  std::optional<std::uint64_t> stored;  // of its `issued`, not visible to others yet
};

struct Model {
  int ranks = 2;
  std::uint64_t calls = 4;
  std::uint8_t levels = 2;
  bool buffers_stores = false;  ///< `issued` becomes visible some time after it was stored
};

struct System {
  std::uint64_t record = 0;
  std::array<std::uint64_t, kMaxRanks> issued{};
  std::array<Rank, kMaxRanks> ranks;
  std::array<std::uint8_t, kMaxCalls + 1> chosen{};  // 1 + level, by call; 0: none yet

  [[nodiscard]] std::string key(int size) const {
    std::string key;
    const auto add = [&](std::uint64_t value) {
      key.append(reinterpret_cast<const char*>(&value), sizeof(std::uint32_t));
    };
    add(record);
    for (const std::uint8_t level : chosen) key.push_back(static_cast<char>(level));
    for (int i = 0; i < size; ++i) {
      const Rank& rank = ranks[static_cast<std::size_t>(i)];
      add(issued[static_cast<std::size_t>(i)]);
      add(rank.calls << 24 | rank.agreement.calls() << 16 | rank.agreement.level() << 8 |
          rank.proposed << 4 | static_cast<std::uint64_t>(rank.doing) << 1 |
          (rank.has_proposed ? 1 : 0));
      add(rank.stored.value_or(~std::uint64_t{0}));
      add(rank.results.size());
      for (const std::uint64_t result : rank.results) add(result);
    }
    return key;
  }
};

struct Result {
  std::string wrong;  ///< empty: nothing
  std::size_t states = 0;
  std::size_t longest = 0;  ///< accesses of a procedure
  bool has_changed = false;
  bool has_changed_back = false;
  bool has_cancelled = false;
};

class Checker {
 public:
  explicit Checker(const Model& model) : model_(model) {
    System first;
    for (int rank = 0; rank < model.ranks; ++rank)
      first.ranks[static_cast<std::size_t>(rank)].agreement = Agreement(rank, model.ranks);
    visit(first);
  }

  Result run() {
    while (!open_.empty() && result_.wrong.empty()) {
      const System system = std::move(open_.back());
      open_.pop_back();
      for (std::size_t rank = 0; rank < static_cast<std::size_t>(model_.ranks); ++rank)
        expand(system, rank);
    }
    result_.states = seen_.size();
    return result_;
  }

 private:
  void visit(const System& system) {
    if (seen_.insert(system.key(model_.ranks)).second) open_.push_back(system);
  }

  void expand(const System& system, std::size_t rank) {
    const Rank& state = system.ranks[rank];
    if (state.stored) {
      System next = system;
      make_visible(next, rank);
      visit(next);
    }
    if (state.doing != Rank::Doing::nothing) return step(system, rank);
    if (rank == 0 && !state.has_proposed) {
      for (std::uint8_t level = 0; level < model_.levels; ++level) {
        System next = system;
        next.ranks[rank].doing = Rank::Doing::proposal;
        next.ranks[rank].proposed = level;
        next.ranks[rank].has_proposed = true;
        step(next, rank);
      }
    }
    if (state.calls == model_.calls) return;
    System next = system;
    next.ranks[rank].doing = Rank::Doing::call;
    next.ranks[rank].has_proposed = false;
    step(next, rank);
  }

  static void make_visible(System& system, std::size_t rank) {
    system.issued[rank] = *system.ranks[rank].stored;
    system.ranks[rank].stored.reset();
  }

  /// The rank makes its next access.
  void step(System system, std::size_t at) {
    Rank& rank = system.ranks[at];
    const Access access = next_access(rank);
    switch (access.kind) {
      case Access::Kind::none: break;
      case Access::Kind::load_record: rank.results.push_back(system.record); break;
      case Access::Kind::load_issued: {
        const auto peer = static_cast<std::size_t>(access.rank);
        rank.results.push_back(peer == at && rank.stored ? *rank.stored : system.issued[peer]);
        break;
      }
      case Access::Kind::set_record:
        system.record = access.value;
        rank.results.push_back(0);
        break;
      case Access::Kind::swap_record:
        if (rank.stored) make_visible(system, at);
        rank.results.push_back(system.record);
        if (system.record != access.expected) break;
        system.record = access.value;
        if (LevelRecord::from_word(access.value).state == LevelRecord::State::cancelled)
          result_.has_cancelled = true;
        break;
      case Access::Kind::store:
        if (rank.stored) make_visible(system, at);
        rank.stored = access.value;
        if (!model_.buffers_stores) make_visible(system, at);
        rank.results.push_back(0);
        break;
    }
    result_.longest = std::max(result_.longest, rank.results.size());
    end_if_done(system, rank);
    visit(system);
  }

  /// Such that all ranks must propose: 0, or one of them.
  static std::uint8_t flags_of(std::uint8_t level) {
    return static_cast<std::uint8_t>(level << 3 & kFlagsOfAllRanks);
  }

  static Access next_access(const Rank& rank) {
    Agreement agreement = rank.agreement;
    ScriptedWords words(rank.results);
    if (rank.doing == Rank::Doing::call)
      agreement.begin_call(words);
    else
      agreement.propose(words, flags_of(rank.proposed));
    return words.next();
  }

  void end_if_done(System& system, Rank& rank) {
    Agreement agreement = rank.agreement;
    ScriptedWords words(rank.results);
    std::uint8_t level = 0;
    if (rank.doing == Rank::Doing::call)
      level = agreement.begin_call(words);
    else
      agreement.propose(words, flags_of(rank.proposed));
    if (words.next().kind != Access::Kind::none) return;
    if (rank.doing == Rank::Doing::call) count(system, ++rank.calls, level);
    rank.agreement = agreement;
    rank.doing = Rank::Doing::nothing;
    rank.results.clear();
  }

  void count(System& system, std::uint64_t call, std::uint8_t level) {
    std::uint8_t& chosen = system.chosen.at(call);
    if (chosen != 0 && chosen != 1 + level)
      result_.wrong = "call " + std::to_string(call) + " has levels " + std::to_string(chosen - 1) +
                      " and " + std::to_string(level);
    chosen = static_cast<std::uint8_t>(1 + level);
    result_.has_changed = result_.has_changed || level != 0;
    const bool was_changed = call > 1 && system.chosen[call - 1] > 1;
    result_.has_changed_back = result_.has_changed_back || (was_changed && level == 0);
  }

  Model model_;
  Result result_;
  std::deque<System> open_;
  std::unordered_set<std::string> seen_;
};

struct ModelCase {
  const char* name;
  Model model;
};

class LevelModel : public testing::TestWithParam<ModelCase> {};

TEST_P(LevelModel, AnyInterleaving_SameLevels) {
  const Result result = Checker(GetParam().model).run();
  EXPECT_EQ(result.wrong, "");
  EXPECT_TRUE(result.has_changed);
  EXPECT_TRUE(result.has_changed_back);
  EXPECT_TRUE(result.has_cancelled);
  // No rank waits: wherever the others are halted, a procedure ends after a few accesses.
  EXPECT_LE(result.longest, 3u + 2u * static_cast<std::size_t>(GetParam().model.ranks));
  RecordProperty("states", static_cast<int>(result.states));
}

INSTANTIATE_TEST_SUITE_P(Sizes, LevelModel,
                         testing::Values(ModelCase{"two_ranks", {.ranks = 2, .calls = 6}},
                                         ModelCase{"three_levels",
                                                   {.ranks = 2, .calls = 5, .levels = 3}},
                                         ModelCase{"three_ranks", {.ranks = 3, .calls = 5}}),
                         [](const auto& each) { return std::string(each.param.name); });

struct MutantCase {
  const char* name;
  level_mutant mutant;
  int ranks = 2;
};

class LevelMutants : public testing::TestWithParam<MutantCase> {
 protected:
  ~LevelMutants() override { active_mutant<level_mutant> = level_mutant::none; }
};

TEST_P(LevelMutants, Mutant_IsFound) {
  active_mutant<level_mutant> = GetParam().mutant;
  EXPECT_NE(Checker({.ranks = GetParam().ranks, .calls = 5}).run().wrong, "");
}

INSTANTIATE_TEST_SUITE_P(
    All, LevelMutants,
    testing::Values(MutantCase{"record_read_first", level_mutant::record_read_first},
                    MutantCase{"tentative_passed", level_mutant::tentative_passed},
                    MutantCase{"cancelled_by_store", level_mutant::cancelled_by_store},
                    MutantCase{"cancel_not_read_again", level_mutant::cancel_not_read_again},
                    MutantCase{"level_at_once", level_mutant::level_at_once},
                    MutantCase{"reused_early", level_mutant::reused_early},
                    MutantCase{"reused_at_once", level_mutant::reused_at_once},
                    MutantCase{"committed_unchecked", level_mutant::committed_unchecked},
                    MutantCase{"committed_by_store", level_mutant::committed_by_store},
                    MutantCase{"level_a_call_early", level_mutant::level_a_call_early},
                    MutantCase{"record_read_a_call_early", level_mutant::record_read_a_call_early},
                    MutantCase{"call_counted_twice", level_mutant::call_counted_twice},
                    MutantCase{"withdrawal_ignored", level_mutant::withdrawal_ignored}),
    [](const auto& each) { return std::string(each.param.name); });

TEST(LevelMutants, BufferedStores_AreFound) {
  EXPECT_NE(Checker({.ranks = 2, .calls = 5, .buffers_stores = true}).run().wrong, "");
}

/// What ranks on threads share, with the flags that each proposes.
class SharedWords {
 public:
  std::uint64_t record() { return record_; }
  void set_record(std::uint64_t word) { record_ = word; }
  bool exchange_record(std::uint64_t& expected, std::uint64_t word) {
    return record_.compare_exchange_strong(expected, word);
  }
  std::uint64_t issued(int rank) { return at(rank).issued; }
  void set_issued(int rank, std::uint64_t call) { at(rank).issued = call; }
  std::uint8_t proposed(int rank) { return at(rank).proposed; }
  void propose(int rank, std::uint8_t flags) { at(rank).proposed = flags; }

 private:
  struct Shared {
    std::atomic<std::uint64_t> issued{0};
    std::atomic<std::uint8_t> proposed{0};
  };
  Shared& at(int rank) { return ranks_.at(static_cast<std::size_t>(rank)); }

  std::atomic<std::uint64_t> record_{0};
  std::array<Shared, kMaxRanks> ranks_;
};

constexpr std::uint8_t kOfAll = 0b1000;
constexpr std::uint8_t kOfAny = 0b1;
/// Each rank proposes other flags after this number of calls,
constexpr int kPeriod = 64;
/// and all follow within this one: ranks are at most kApart calls apart.
constexpr int kFollows = 24;
constexpr int kApart = 8;
constexpr int kPeriods = 40;

/// In a period all ranks propose the flag of all, or one does not; none proposes that of any, or
/// one does.
std::uint8_t flags_in(int period, int rank) {
  const bool is_withdrawn = period % 2 == 1 && period / 2 % kMaxRanks == rank;
  const bool is_raised = period % 3 == 1 && period / 3 % kMaxRanks == rank;
  return static_cast<std::uint8_t>((is_withdrawn ? 0 : kOfAll) | (is_raised ? kOfAny : 0));
}

/// Rows of calls from skewed starts, on threads. What was wrong first; empty: nothing.
std::string wrong_in_rows() {
  SharedWords words;
  std::array<std::vector<std::uint8_t>, kMaxRanks> levels;
  std::barrier<> meeting(kMaxRanks);
  const auto run = [&](int rank) {
    FlagAgreement<SharedWords> agreement(rank, kMaxRanks);
    std::mt19937 random(static_cast<unsigned>(rank));
    for (int call = 0; call < kPeriods * kPeriod; ++call) {
      for (unsigned skew = random() % 8; skew > 0; --skew) std::this_thread::yield();
      words.propose(rank, flags_in(call / kPeriod, rank));
      levels.at(static_cast<std::size_t>(rank)).push_back(agreement.begin_call(words));
      if (call % kApart == kApart - 1) meeting.arrive_and_wait();
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < kMaxRanks; ++rank) threads.emplace_back(run, rank);
  }
  for (std::size_t call = 0; call < levels.front().size(); ++call) {
    const std::string name = "call " + std::to_string(call);
    for (const auto& of_rank : levels)
      if (of_rank[call] != levels.front()[call]) return name + " is not alike on all ranks";
    const int period = static_cast<int>(call) / kPeriod;
    if (static_cast<int>(call) % kPeriod < kFollows) continue;
    unsigned all = kOfAll;
    unsigned any = 0;
    for (int rank = 0; rank < kMaxRanks; ++rank) {
      all &= flags_in(period, rank);
      any |= flags_in(period, rank) & kOfAny;
    }
    if (levels.front()[call] != (all | any)) return name + " does not follow what ranks propose";
  }
  return "";
}

TEST(LevelRows, SkewedThreads_FollowFlagsAtOneCall) { EXPECT_EQ(wrong_in_rows(), ""); }

/// A record that is read a call early needs an interleaving that the model finds.
class LevelRowMutants : public testing::TestWithParam<MutantCase> {
 protected:
  ~LevelRowMutants() override { active_mutant<level_mutant> = level_mutant::none; }
};

TEST_P(LevelRowMutants, Mutant_IsFound) {
  active_mutant<level_mutant> = GetParam().mutant;
  EXPECT_NE(wrong_in_rows(), "");
}

INSTANTIATE_TEST_SUITE_P(
    All, LevelRowMutants,
    testing::Values(MutantCase{"level_a_call_early", level_mutant::level_a_call_early},
                    MutantCase{"call_counted_twice", level_mutant::call_counted_twice},
                    MutantCase{"withdrawal_ignored", level_mutant::withdrawal_ignored},
                    MutantCase{"flag_of_one_is_enough", level_mutant::flag_of_one_is_enough},
                    MutantCase{"withdrawal_not_looked_at", level_mutant::withdrawal_not_looked_at}),
    [](const auto& each) { return std::string(each.param.name); });

TEST(LevelRecord, KeepsItsParts) {
  const LevelRecord record{LevelRecord::State::committed, 63, (std::uint64_t{1} << 56) - 1};
  const LevelRecord same = LevelRecord::from_word(record.word());
  EXPECT_EQ(same.state, record.state);
  EXPECT_EQ(same.level, record.level);
  EXPECT_EQ(same.first_call, record.first_call);
  EXPECT_EQ(LevelRecord{}.word(), 0u);
}

}  // namespace
}  // namespace polypath::test
