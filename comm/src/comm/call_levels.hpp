// Which level the plan of a call follows, alike on all ranks of a communicator: level_agreement.hpp
// over its control segment. A level is a set of flags. What they mean is the caller's.
#pragma once

#include <cstdint>

#include "comm/control_segment.hpp"
#include "comm/level_agreement.hpp"

namespace polypath {

/// One rank's. All ranks make the same calls in the same order. One thread at a time. Nothing
/// waits, and nothing takes a lock.
class CallLevels {
 public:
  /// `segment` must outlive it.
  CallLevels(ControlSegment& segment, int rank);

  /// These flags hold when all ranks propose them; others when any rank does.
  static constexpr std::uint8_t kOfAllRanks = kFlagsOfAllRanks;

  /// Proposes flags for calls to come: they hold some calls later.
  void propose(std::uint8_t flags) noexcept;
  /// This rank issues its next call. Returns the call's level, the same on all ranks.
  std::uint8_t begin_call() noexcept { return agreement_.begin_call(words_); }
  /// That of the latest call, the same on all ranks between the same calls. Before the first one 0.
  [[nodiscard]] std::uint8_t level() const noexcept { return agreement_.level(); }

 private:
  /// The words of the control segment.
  class Words {
   public:
    explicit Words(ControlSegment& segment) noexcept : segment_(segment) {}
    std::uint64_t record() noexcept { return segment_.level_record(); }
    void set_record(std::uint64_t word) noexcept { segment_.level_record() = word; }
    bool exchange_record(std::uint64_t& expected, std::uint64_t word) noexcept {
      return segment_.level_record().compare_exchange_strong(expected, word);
    }
    std::uint64_t issued(int rank) noexcept { return segment_.issued(rank); }
    void set_issued(int rank, std::uint64_t call) noexcept { segment_.issued(rank) = call; }
    std::uint8_t proposed(int rank) noexcept {
      return segment_.proposed_level(rank).load(std::memory_order_relaxed);
    }

   private:
    ControlSegment& segment_;
  };

  ControlSegment& segment_;
  const int rank_;
  Words words_;
  FlagAgreement<Words> agreement_;
};

}  // namespace polypath
