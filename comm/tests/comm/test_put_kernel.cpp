// The host build of the kernel that puts small messages for a stream, over hostile schedules: rows of
// calls of three ranks, with skewed starts. And what these tests are worth: each defect of
// StreamPutFault is found.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <random>

#include "comm/kernels/stream_put_args.h"
#include "comm/kernels/wait_mutants.h"
#include "planting.hpp"
#include "simt/platform.cuh"
#include "simt/run.hpp"

namespace polypath::test {

constexpr std::uint32_t kPutRanks = 3;
constexpr std::size_t kInboxBytes = 768;  // of messages from one rank

/// Words that are waited for before bytes are taken; null: none.
struct TakeBehind {
  const std::uint64_t* words;
  std::uint64_t value;
  std::uint32_t own;  ///< which no rank signals
};

/// What has come, by one thread a byte: after the words, or after the kernel before, which has
/// waited for them.
SIMT_KERNEL(test_take_bytes, 32, TakeBehind behind, const unsigned char* inbox,
            unsigned char* out) {
  for (std::uint32_t from = 0; behind.words != nullptr && from < kPutRanks; ++from)
    while (from != behind.own && simt::load_acquire(behind.words + from) < behind.value)
      simt::spin_pause();
  for (std::uint32_t i = simt::thread_index(); i < kPutRanks * kInboxBytes; i += 32)
    simt::store(out + i, simt::load(inbox + i));
}

namespace {

using Inbox = std::array<unsigned char, kPutRanks * kInboxBytes>;  // by sender

class PutKernel : public testing::Test {
 protected:
  struct Rank {
    Inbox inbox{};
    /// What other ranks tell it: that their messages have come, and that they have taken its own.
    std::array<std::uint64_t, kPutRanks> arrivals{};
    std::array<std::uint64_t, kPutRanks> taken{};
    std::array<std::uint32_t, kPutRanks> counts{};  ///< by receiver
    std::uint32_t abort_flag = 0;
    std::uint32_t reports = 0;
    wait_error status{};
  };

  StreamPutArgs args_of(std::uint32_t rank) {
    Rank& state = ranks_[rank];
    StreamPutArgs args{};
    args.wait_ctx = {&state.abort_flag, 1'000'000'000, &state.status, &state.reports,
                     wait_error::kStreamWait};
    return args;
  }
  /// The next put, with `blocks` blocks of its own; none: with those of the put before it.
  void put(StreamPutArgs& args, std::uint32_t rank, std::uint32_t to, std::uint32_t blocks,
           const std::vector<unsigned char>& message, unsigned char* at, std::uint64_t* word,
           std::uint64_t value) {
    PutPart& part = args.parts[args.part_count++];
    part = {message.data(), at, message.size(), word, value, args.put_blocks, blocks, nullptr};
    if (blocks == 0) {
      part.blocks = 1;
      --part.first_block;
    }
    if (blocks > 1) part.arrived = &ranks_[rank].counts[to];
    args.put_blocks += blocks;
  }
  void add(std::uint32_t rank, const StreamPutArgs& args) {
    rows_[rank].push_back(simt::launch("polypath_stream_puts", static_cast<int>(rank),
                                       args.put_blocks + (args.wait_count > 0 ? 1 : 0), 64, args));
  }
  void take(std::uint32_t rank, const TakeBehind& behind, Inbox& out) {
    rows_[rank].push_back(simt::launch("test_take_bytes", static_cast<int>(rank), 1, 32, behind,
                                       static_cast<const unsigned char*>(ranks_[rank].inbox.data()),
                                       out.data()));
  }
  /// For the words of all others to be at `value`, in `words` of this rank.
  static void wait_for_all(StreamPutArgs& args, std::uint32_t rank,
                           const std::array<std::uint64_t, kPutRanks>& words, std::uint64_t value) {
    for (std::uint32_t from = 0; from < kPutRanks; ++from)
      if (from != rank)
        args.waits[args.wait_count++] = {&words[from], value, 8 * from, sizeof words};
  }

  /// Rounds in which each rank sends to each other one, takes what has come, and says so: two
  /// messages by one block, the second partly over the first, or one by three. Empty, or what was
  /// wrong.
  std::string exchange(std::uint64_t seed) {
    constexpr std::uint64_t kRounds = 5;
    ranks_ = {};
    for (Rank& rank : ranks_) rank.inbox.fill(0xEE);
    std::mt19937_64 random(seed);
    std::deque<std::vector<unsigned char>> messages;
    std::array<Inbox, kPutRanks> expected;
    for (Inbox& all : expected) all.fill(0xEE);
    std::deque<Inbox> taken;  // by round and rank
    std::deque<Inbox> inboxes;
    Inbox idle{};
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
      for (std::uint32_t rank = 0; rank < kPutRanks; ++rank) {
        // One is late.
        for (std::uint32_t i = 0; i < 6 && rank == (seed + round) % kPutRanks; ++i)
          take(rank, {}, idle);
        StreamPutArgs args = args_of(rank);
        for (std::uint32_t to = 0; to < kPutRanks; ++to) {
          if (to == rank) continue;
          const bool is_shared = random() % 2 == 0;
          for (const bool is_second : {false, true}) {
            if (is_shared && !is_second) continue;
            std::vector<unsigned char>& message = messages.emplace_back(1 + random() % 600);
            std::ranges::generate(message, std::ref(random));
            const std::size_t at =
                rank * kInboxBytes + random() % (kInboxBytes - message.size() + 1);
            std::ranges::copy(message, expected[to].begin() + static_cast<std::ptrdiff_t>(at));
            // The words of both rise: a rank that sees the second sees both.
            put(args, rank, to,
                is_shared   ? 3
                : is_second ? 0
                            : 1,
                message, ranks_[to].inbox.data() + at, &ranks_[to].arrivals[rank],
                2 * round - (is_second ? 0 : 1));
          }
        }
        // The kernel that takes may wait itself: what comes too late is seen by it more often.
        const bool takes_at_once = random() % 2 == 0;
        if (!takes_at_once) wait_for_all(args, rank, ranks_[rank].arrivals, 2 * round);
        add(rank, args);
        Inbox& out = taken.emplace_back();
        out.fill(0x11);
        take(rank,
             takes_at_once ? TakeBehind{ranks_[rank].arrivals.data(), 2 * round, rank}
                           : TakeBehind{},
             out);
        // Words alone; no rank sends more before all have taken this.
        StreamPutArgs notice = args_of(rank);
        for (std::uint32_t to = 0; to < kPutRanks; ++to)
          if (to != rank)
            put(notice, rank, to, 1, nothing_, nullptr, &ranks_[to].taken[rank], round);
        wait_for_all(notice, rank, ranks_[rank].taken, round);
        add(rank, notice);
      }
      for (const Inbox& all : expected) inboxes.push_back(all);
    }
    if (const std::string error = run(random()); !error.empty()) return error;
    for (std::uint32_t rank = 0; rank < kPutRanks; ++rank)
      if (ranks_[rank].status.given_up != 0) return "rank " + std::to_string(rank) + " gave up";
    for (std::size_t i = 0; i < taken.size(); ++i)
      if (taken[i] != inboxes[i])
        return "rank " + std::to_string(i % kPutRanks) + " took something else in round " +
               std::to_string(i / kPutRanks + 1);
    return {};
  }

  std::string run(std::uint64_t seed) {
    simt::RunOptions options;
    options.seed = seed;
    options.max_steps = 3'000'000;
    for (std::uint32_t rank = 0; rank < kPutRanks; ++rank)
      options.memory.push_back({&ranks_[rank], sizeof(Rank), static_cast<int>(rank)});
    const std::string error = simt::run(rows_, options);
    for (auto& row : rows_) row.clear();
    return error;
  }

  const std::vector<unsigned char> nothing_;
  std::array<Rank, kPutRanks> ranks_{};
  std::vector<std::vector<simt::Launch>> rows_{kPutRanks};
};

TEST_F(PutKernel, SignalArrivesAfterItsBytes) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) ASSERT_EQ("", exchange(seed)) << "seed " << seed;
}

TEST_F(PutKernel, AbortedWait_IsReportedAndPutsArrive) {
  ranks_ = {};
  const std::vector<unsigned char> message{1, 2, 3, 4, 5};
  StreamPutArgs args = args_of(0);
  put(args, 0, 1, 1, message, ranks_[1].inbox.data() + 3, &ranks_[1].arrivals[0], 7);
  args.waits[args.wait_count++] = {&ranks_[0].arrivals[1], 9, 8, sizeof ranks_[0].arrivals};
  ranks_[0].arrivals[1] = 8;
  ranks_[0].abort_flag = 1;
  add(0, args);
  ASSERT_EQ("", run(1));
  EXPECT_EQ(1U, ranks_[0].status.given_up);
  EXPECT_EQ(wait_error::aborted, ranks_[0].status.reason);
  EXPECT_EQ(9U, ranks_[0].status.expected);
  EXPECT_EQ(8U, ranks_[0].status.seen);
  EXPECT_EQ(8U, ranks_[0].status.offset);
  EXPECT_TRUE(std::ranges::equal(message, std::span(ranks_[1].inbox).subspan(3, 5)));
  EXPECT_EQ(7U, ranks_[1].arrivals[0]);
}

class PutMutants : public PutKernel, public testing::WithParamInterface<StreamPutFault> {};

TEST_P(PutMutants, MakesRunsFail) {
  const Planting planting(GetParam());
  for (std::uint64_t seed = 1; seed <= 400; ++seed)
    if (!exchange(seed).empty()) return;
  FAIL() << "it is not found";
}

INSTANTIATE_TEST_SUITE_P(
    All, PutMutants,
    testing::Values(StreamPutFault::word_before_bytes, StreamPutFault::word_before_the_block,
                    StreamPutFault::word_without_release, StreamPutFault::word_by_any_block,
                    StreamPutFault::count_not_put_back, StreamPutFault::first_wait_alone));

}  // namespace
}  // namespace polypath::test
