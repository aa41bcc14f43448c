// Runs of the benchmark that do not end (bench/messaging/run_watch.hpp) are said to, and ended.
#include "run_watch.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <vector>

namespace messaging_bench {
namespace {

using std::chrono::milliseconds;

struct Told {
  std::atomic<int> words{0};
  std::atomic<int> ends{0};
  std::atomic<int> kills{0};
  std::mutex mutex;
  std::string reason;

  RunWatch::Calls calls() {
    return {[] { return std::string("3 of 9 turns"); }, [this](const std::string&) { ++words; },
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

TEST(RunWatch, SaysHowFarARunHasComeAndEndsIt) {
  Told told;
  RunWatch watch("a line", {milliseconds(5), milliseconds(200)}, told.calls());
  watch.next_run();
  watch.next_run();
  sleep_until(told.kills);
  EXPECT_GE(told.words, 1);
  EXPECT_EQ(told.ends, 1);
  const std::lock_guard lock(told.mutex);
  EXPECT_EQ(told.reason, "a line: run 2 has not ended after 0 s: 3 of 9 turns");
}

TEST(RunWatch, ManyRunsThatEndMayLastLongTogether) {
  Told told;
  {
    RunWatch watch("a line", {milliseconds(400), milliseconds(500)}, told.calls());
    for (int run = 0; run < 120; ++run) {
      watch.next_run();
      std::this_thread::sleep_for(milliseconds(5));
    }
  }
  EXPECT_EQ(told.words + told.ends + told.kills, 0);
}

}  // namespace
}  // namespace messaging_bench
