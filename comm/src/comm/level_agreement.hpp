// How the ranks of a communicator come to follow another plan from the same call on, though none of
// them waits for another one.
//
// Each rank counts its calls, which are the same on all ranks. A level is a small number that says
// which plan a call follows. One shared record of 64 bits says from which call on another level
// holds: {state, level, first call N}. Each rank shares the number of its latest call (`issued`).
//
//   rank r, call n     1  issued[r] = n
//                      2  reads the record
//                      3  n < N, or cancelled: the former level holds
//                         n >= N, committed: the record's level holds from now on
//                         n >= N, tentative: cancels it by compare-and-swap, and reads again
//   rank 0, a change   1  returns if the record is committed and some issued[r] <= N, or if the
//                         level holds already
//                      2  N = the largest issued[r], and a little more
//                      3  writes the record, tentative
//                      4  reads all issued[r]. All < N: commits by compare-and-swap; else cancels
//
// All accesses are sequentially consistent.
//
// 1. All calls n >= N see one outcome. Either rank 0 reads issued[r] >= N in its step 4, and the
//    record is never committed. Or rank r wrote issued[r] = n after that read, so it reads the
//    record after it was written: tentative or decided. Of commit and cancel, both by
//    compare-and-swap, one wins.
// 2. No call misses a committed record. issued[r] > N means that rank r has read the record in a
//    call n >= N: that read came before the write of issued[r]. `issued[r] >= N` would not do:
//    a rank that is halted between its steps 1 and 2 has not read yet.
// 3. N grows with each record, so that a compare-and-swap never takes a record for another one.
// 4. No step waits. A rank that is halted or dead keeps a record from being reused, and nothing
//    else. If rank 0 is halted before it commits, the first rank that comes to N cancels.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "polypath/device/detail/mutant_switch.hpp"

namespace polypath {

enum class level_mutant : std::uint8_t {
  none,
  record_read_first,      ///< a rank shares its call's number after it has read the record
  tentative_passed,       ///< a rank takes the former level, and does not cancel
  cancelled_by_store,     ///< without a compare
  cancel_not_read_again,  ///< a rank that could not cancel takes the former level
  level_at_once,          ///< a committed level holds before its first call
  reused_early,           ///< the record is written again when all ranks have begun call N
  reused_at_once,         ///< ... without a look at the ranks
  committed_unchecked,    ///< rank 0 does not read `issued` again
  committed_by_store,     ///< without a compare
  // Rank 1 alone has these:
  level_a_call_early,        ///< it takes a level at the call before the first one
  record_read_a_call_early,  ///< it reads the record when it issues the call before
  call_counted_twice,        ///< its third one
  withdrawal_ignored,        ///< it keeps flags that all ranks must propose
  // Rank 0 has these:
  flag_of_one_is_enough,     ///< of those that all ranks must propose
  withdrawal_not_looked_at,  ///< such a flag is kept once it holds
};

/// A level is a set of flags. These hold when all ranks propose them; others when any rank does.
inline constexpr std::uint8_t kFlagsOfAllRanks = 0b111000;

/// As the ranks share it in one word.
struct LevelRecord {
  enum class State : std::uint8_t { cancelled, tentative, committed };

  State state = State::cancelled;
  std::uint8_t level = 0;        ///< below 64
  std::uint64_t first_call = 0;  ///< below 2^56

  [[nodiscard]] constexpr std::uint64_t word() const noexcept {
    return first_call << 8 | std::uint64_t{level} << 2 | static_cast<std::uint64_t>(state);
  }
  static constexpr LevelRecord from_word(std::uint64_t word) noexcept {
    return {static_cast<State>(word & 3), static_cast<std::uint8_t>(word >> 2 & 63), word >> 8};
  }
  [[nodiscard]] constexpr LevelRecord in_state(State other) const noexcept {
    return {other, level, first_call};
  }
};

/// One rank's part. One thread at a time. `Words` is what the ranks share; all begin as 0:
///
///   std::uint64_t record();
///   void set_record(std::uint64_t word);
///   bool exchange_record(std::uint64_t& expected, std::uint64_t word);  // as compare_exchange
///   std::uint64_t issued(int rank);
///   void set_issued(int rank, std::uint64_t call);
template <typename Words>
class LevelAgreement {
 public:
  /// Calls from the latest one that any rank has issued to the first one with a new level: a rank
  /// that issues one meanwhile prevents no change.
  static constexpr std::uint64_t kLead = 2;

  constexpr LevelAgreement(int rank, int size) noexcept : rank_(rank), size_(size) {}

  /// This rank issues its next call. Returns the level that holds for it, the same on all ranks.
  std::uint8_t begin_call(Words& words) {
    using State = LevelRecord::State;
    std::uint64_t word = 0;
    if (has_mutant(level_mutant::record_read_first)) word = words.record();
    POLYPATH_MUTANT(level_mutant::call_counted_twice, calls_ += rank_ == 1 && calls_ == 2 ? 1 : 0)
    words.set_issued(rank_, ++calls_);
    if (!has_mutant(level_mutant::record_read_first)) word = words.record();
    POLYPATH_MUTANT(level_mutant::record_read_a_call_early,
                    if (rank_ == 1) std::swap(word, early_record_))
    while (true) {
      const LevelRecord record = LevelRecord::from_word(word);
      bool is_due = calls_ >= record.first_call || has_mutant(level_mutant::level_at_once);
      POLYPATH_MUTANT(level_mutant::level_a_call_early,
                      is_due = is_due || (rank_ == 1 && calls_ + 1 == record.first_call))
      if (!is_due || record.state == State::cancelled) return level_;
      std::uint8_t level = record.level;
      POLYPATH_MUTANT(level_mutant::withdrawal_ignored,
                      if (rank_ == 1) level |= level_ & kFlagsOfAllRanks)
      if (record.state == State::committed) return level_ = level;
      if (has_mutant(level_mutant::tentative_passed)) return level_;
      const std::uint64_t cancelled = record.in_state(State::cancelled).word();
      if (has_mutant(level_mutant::cancelled_by_store)) {
        words.set_record(cancelled);
        return level_;
      }
      if (words.exchange_record(word, cancelled)) return level_;
      if (has_mutant(level_mutant::cancel_not_read_again)) return level_;
    }
  }

  /// For rank 0, between its calls: asks for `level` in calls to come. Returns whether a record was
  /// committed; otherwise ask again with a later call.
  bool propose(Words& words, std::uint8_t level) {
    using State = LevelRecord::State;
    const LevelRecord last = LevelRecord::from_word(words.record());
    std::uint64_t latest = 0;
    std::uint64_t earliest = ~std::uint64_t{0};
    for (int rank = 0; rank < size_; ++rank) {
      const std::uint64_t issued = words.issued(rank);
      latest = std::max(latest, issued);
      earliest = std::min(earliest, issued);
    }
    if (has_mutant(level_mutant::reused_early)) ++earliest;
    const bool is_read = earliest > last.first_call || has_mutant(level_mutant::reused_at_once);
    if (last.state == State::committed && !is_read) return false;
    if (level == level_) return false;
    const LevelRecord next{State::tentative, level, latest + kLead};
    words.set_record(next.word());
    bool is_early = true;
    for (int rank = 0; rank < size_; ++rank)
      is_early = is_early && words.issued(rank) < next.first_call;
    if (has_mutant(level_mutant::committed_unchecked)) is_early = true;
    const LevelRecord decided = next.in_state(is_early ? State::committed : State::cancelled);
    if (has_mutant(level_mutant::committed_by_store)) {
      words.set_record(decided.word());
      return is_early;
    }
    std::uint64_t expected = next.word();
    return words.exchange_record(expected, decided.word()) && is_early;
  }

  /// The latest call's level; before the first call 0.
  [[nodiscard]] std::uint8_t level() const noexcept { return level_; }
  [[nodiscard]] std::uint64_t calls() const noexcept { return calls_; }

  friend auto operator<=>(const LevelAgreement&, const LevelAgreement&) = default;

 private:
  int rank_;
  int size_;
  std::uint64_t calls_ = 0;
  std::uint8_t level_ = 0;
  POLYPATH_MUTANT_ONLY(std::uint64_t early_record_ = 0)
};

/// One rank's part where each rank proposes flags at any time. `Words` also has
///
///   std::uint8_t proposed(int rank);
template <typename Words>
class FlagAgreement {
 public:
  constexpr FlagAgreement(int rank, int size) noexcept
      : rank_(rank), size_(size), agreement_(rank, size) {}

  /// This rank issues its next call. Returns the flags that hold for it, the same on all ranks.
  std::uint8_t begin_call(Words& words) {
    if (rank_ == 0) {
      const std::uint8_t next = proposed_by_all(words);
      if (next != agreement_.level()) agreement_.propose(words, next);
    }
    return agreement_.begin_call(words);
  }
  /// The flags of the latest call; before the first call 0.
  [[nodiscard]] std::uint8_t level() const noexcept { return agreement_.level(); }

 private:
  std::uint8_t proposed_by_all(Words& words) const {
    unsigned of_any = 0;
    unsigned of_all = kFlagsOfAllRanks;
    for (int rank = 0; rank < size_; ++rank) {
      const unsigned proposed = words.proposed(rank);
      of_any |= proposed;
      of_all &= proposed;
    }
    if (has_mutant(level_mutant::flag_of_one_is_enough)) of_all = of_any & kFlagsOfAllRanks;
    if (has_mutant(level_mutant::withdrawal_not_looked_at))
      of_all |= agreement_.level() & kFlagsOfAllRanks;
    return static_cast<std::uint8_t>(of_all | (of_any & ~unsigned{kFlagsOfAllRanks}));
  }

  int rank_;
  int size_;
  LevelAgreement<Words> agreement_;
};

}  // namespace polypath
