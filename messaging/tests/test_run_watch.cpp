// Runs of the benchmark that do not end (lab/bench/messaging/run_watch.hpp) are said to, and ended.
#include "run_watch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

namespace messaging_bench {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::EndsWith;
using testing::StartsWith;

struct Told {
  std::atomic<int> words{0};
  std::atomic<int> words_of_second{0};  ///< run
  std::atomic<int> ends{0};
  std::atomic<int> kills{0};
  std::mutex mutex;
  std::string reason;

  RunWatch::Calls calls() {
    return {[] { return std::string("3 of 9 turns"); },
            [this](const std::string& text) {
              ++words;
              if (text.starts_with("a line: run 2 has not ended after ") &&
                  text.ends_with(" s: 3 of 9 turns"))
                ++words_of_second;
            },
            [this](const std::string& text) {
              const std::lock_guard lock(mutex);
              reason = text;
              ++ends;
            },
            [this](const std::string&) { ++kills; }};
  }
};

void sleep_until(const std::atomic<int>& count) {
  while (count == 0) std::this_thread::sleep_for(milliseconds(1));
}

TEST(RunWatch, SaysHowFarARunHasCome) {
  Told record;
  {
    RunWatch watch("a line", {milliseconds(5), std::chrono::hours(1)}, record.calls());
    watch.next_run();
    watch.next_run();
    sleep_until(record.words_of_second);
  }
  EXPECT_EQ(record.ends + record.kills, 0);
}

TEST(RunWatch, EndsARunThatLasts) {
  Told record;
  RunWatch watch("a line", {std::chrono::hours(1), milliseconds(20)}, record.calls());
  watch.next_run();
  sleep_until(record.kills);
  EXPECT_EQ(record.words, 0);
  EXPECT_EQ(record.ends, 1);
  const std::lock_guard lock(record.mutex);
  EXPECT_THAT(record.reason, AllOf(StartsWith("a line: run 1 has not ended after "),
                                   EndsWith(" s: 3 of 9 turns")));
}

TEST(RunWatch, ManyRunsThatEndMayLastLongTogether) {
  // A busy machine may keep one run for longer than its limit: then nothing is known.
  constexpr milliseconds kWord{400};
  for (;;) {
    Told record;
    std::chrono::steady_clock::duration longest{};
    {
      RunWatch watch("a line", {kWord, milliseconds(500)}, record.calls());
      for (int run = 0; run < 120; ++run) {
        const auto began = std::chrono::steady_clock::now();
        watch.next_run();
        std::this_thread::sleep_for(milliseconds(5));
        longest = std::max(longest, std::chrono::steady_clock::now() - began);
      }
    }
    if (longest >= kWord / 2) continue;
    EXPECT_EQ(record.words + record.ends + record.kills, 0);
    return;
  }
}

}  // namespace
}  // namespace messaging_bench
