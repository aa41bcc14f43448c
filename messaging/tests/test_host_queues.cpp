// The CPU's side of queues and pairs, with threads of the CPU on both: the algorithm of
// polypath/device/queue.cuh, where the thread sanitizer sees it.
#include <gtest/gtest.h>

#include <array>
#include <random>
#include <thread>
#include <vector>

#include "polypath/messaging/host_spsc_queue.hpp"
#include "queue_memory.hpp"

namespace polypath::test {
namespace {

using device::status;
using messaging::host_queue;
using messaging::host_spsc_consumer;
using messaging::host_spsc_producer;

constexpr std::uint32_t kSides = 3;  // threads that push, and as many that pop
#if defined(__SANITIZE_THREAD__)
constexpr std::uint32_t kNumbers = 2000;
#else
constexpr std::uint32_t kNumbers = 5000;
#endif

template <unsigned kWords>
struct Words {
  std::array<std::uint32_t, kWords> words;

  static std::uint32_t word(std::uint32_t side, std::uint32_t number, unsigned place) {
    return (side * 0x9E3779B9U + number * 0x85EBCA6BU + place * 0xC2B2AE35U) ^ number >> 7;
  }
  static Words make(std::uint32_t side, std::uint32_t number) {
    Words item;
    item.words[0] = side;
    item.words[1] = number;
    for (unsigned i = 2; i < kWords; ++i) item.words[i] = word(side, number, i);
    return item;
  }
  [[nodiscard]] bool is_right() const {
    for (unsigned i = 2; i < kWords; ++i)
      if (words[i] != word(words[0], words[1], i)) return false;
    return true;
  }
};

/// No machine is so busy that a wait of these tests comes to its end: ctest's limit ends a hang.
template <typename View>
View patient(View view) {
  view.wait_ctx.time_limit_ns = 3'600'000'000'000;
  return view;
}

/// What one thread popped.
struct Popped {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> items;
  bool all_right = true;

  template <unsigned kWords>
  void add(const Words<kWords>* popped, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      items.emplace_back(popped[i].words[0], popped[i].words[1]);
      all_right = all_right && popped[i].is_right();
    }
  }
};

void expect_each_once_in_order(const std::vector<Popped>& all, std::uint32_t sides) {
  std::vector<int> times(std::size_t{sides} * kNumbers, 0);
  for (const Popped& popped : all) {
    EXPECT_TRUE(popped.all_right) << "a torn item";
    std::vector<std::uint32_t> next(sides, 0);
    for (const auto& [side, number] : popped.items) {
      ASSERT_LT(side, sides);
      ASSERT_LT(number, kNumbers);
      ++times[side * std::size_t{kNumbers} + number];
      ASSERT_GE(number, next[side]) << "out of order";
      next[side] = number + 1;
    }
  }
  for (const int count : times) ASSERT_EQ(count, 1);
}

template <unsigned kWords>
void run_queue(bool tries) {
  QueueMemory memory(kWords, 6, 4);
  constexpr std::size_t kSegment = 16;
  const host_queue<Words<kWords>> queue(patient(memory.view()));
  std::vector<Popped> popped(kSides);
  std::vector<std::jthread> pops;
  for (std::uint32_t side = 0; side < kSides; ++side)
    pops.emplace_back([&, side] {
      std::minstd_rand random(side + 1);
      std::vector<Words<kWords>> items(kSegment);
      for (;;) {
        std::size_t got = 0;
        const std::size_t most = random() % kSegment + 1;
        const status result =
            tries ? queue.try_pop(items.data(), most, &got) : queue.pop(items.data(), most, &got);
        popped[side].add(items.data(), got);
        if (result == status::closed) return;
        if (result == status::empty) std::this_thread::yield();
      }
    });
  {
    std::vector<std::jthread> pushes;
    for (std::uint32_t side = 0; side < kSides; ++side)
      pushes.emplace_back([&, side] {
        std::minstd_rand random(side + 77);
        std::vector<Words<kWords>> items;
        for (std::uint32_t number = 0; number < kNumbers;) {
          items.clear();
          for (std::size_t i = random() % kSegment + 1; i > 0 && number < kNumbers; --i)
            items.push_back(Words<kWords>::make(side, number++));
          if (!tries) {
            EXPECT_EQ(queue.push(items.data(), items.size()), status::done);
            continue;
          }
          while (queue.try_push(items.data(), items.size()) != status::done)
            std::this_thread::yield();
        }
      });
  }
  queue.close();
  pops.clear();
  expect_each_once_in_order(popped, kSides);
}

TEST(HostQueues, EveryItemOnceAndInOrder) {
  run_queue<2>(false);
  run_queue<3>(false);
  run_queue<5>(false);
  run_queue<24>(false);
}
TEST(HostQueues, EveryItemByTryCalls) {
  run_queue<3>(true);
  run_queue<10>(true);
}

TEST(HostQueues, OverwriteNothingBeyond32BitsOfLaps) {
  QueueMemory memory(3, 4, 2);
  memory.start_at(0xFFFFFFFD);
  const host_queue<Words<3>> queue(patient(memory.view()));
  std::uint32_t pushed = 0;
  std::uint32_t popped = 0;
  const auto push = [&] {
    const Words<3> item = Words<3>::make(1, pushed);
    const status result = queue.try_push(&item, 1);
    if (result == status::done) ++pushed;
    return result;
  };
  const auto pop = [&] {
    Words<3> item;
    std::size_t got = 0;
    ASSERT_EQ(queue.try_pop(&item, 1, &got), status::done);
    ASSERT_TRUE(item.is_right());
    ASSERT_EQ(item.words[1], popped++);
  };
  for (int lap = 0; lap < 6; ++lap) {
    for (int i = 0; i < 16; ++i) ASSERT_EQ(push(), status::done) << lap;
    ASSERT_EQ(push(), status::full) << lap;
    for (int i = 0; i < 16; ++i) pop();
  }
}

/// Stores before a push are visible to the thread that pops the item.
TEST(HostQueues, PublishWhatWasStoredBefore) {
  QueueMemory memory(3, 5, 3);
  const host_queue<std::uint32_t> queue(patient(memory.view()));
  std::vector<std::uint32_t> elsewhere(kNumbers, 0);
  std::vector<std::jthread> pops;
  for (unsigned side = 0; side < 2; ++side)
    pops.emplace_back([&] {
      std::uint32_t number = 0;
      while (queue.pop(number) == status::done) ASSERT_EQ(elsewhere[number], number + 1);
    });
  for (std::uint32_t number = 0; number < kNumbers; ++number) {
    elsewhere[number] = number + 1;
    ASSERT_EQ(queue.push(number), status::done);
  }
  queue.close();
}

TEST(HostQueues, FullAndEmpty_AreReported) {
  QueueMemory memory(3, 4, 2);
  const host_queue<std::uint64_t> queue(patient(memory.view()));
  const std::array<std::uint64_t, 4> items{1, 2, 3, 4};
  std::array<std::uint64_t, 8> popped{};
  std::size_t got = 7;
  EXPECT_EQ(queue.try_pop(popped.data(), 8, &got), status::empty);
  EXPECT_EQ(got, 0U);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(queue.try_push(items.data(), 4), status::done);
  EXPECT_EQ(queue.try_push(items.data(), 1), status::full);
  EXPECT_EQ(queue.try_push(items.data(), 5), status::too_many_items);
  EXPECT_EQ(queue.try_pop(popped.data(), 3, &got), status::done);
  EXPECT_EQ(got, 3U);
  EXPECT_EQ(queue.try_push(items.data(), 1), status::full) << "credit comes by segments";
  EXPECT_EQ(queue.try_pop(popped.data(), 1, &got), status::done);
  EXPECT_EQ(popped[0], 4U);
  EXPECT_EQ(queue.try_push(items.data(), 1), status::done);
  queue.close();
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(queue.pop(popped.data(), i < 3 ? 4 : 8, &got), i < 3 ? status::done : status::closed);
    EXPECT_EQ(got, i < 3 ? 4U : 1U);
  }
  EXPECT_EQ(queue.try_pop(popped.data(), 1, &got), status::closed);
}

TEST(HostQueues, EndTheirWaits) {
  QueueMemory memory(3, 4, 2);
  device::queue_view view = memory.view();
  view.wait_ctx.time_limit_ns = 2'000'000;
  std::uint64_t item = 77;
  EXPECT_EQ(host_queue<std::uint64_t>(view).pop(item), status::aborted);
  std::array<std::uint64_t, 20> items{};
  view.wait_ctx.time_limit_ns = 3'600'000'000'000;
  memory.wait_ctx().abort_flag = 1;
  EXPECT_EQ(host_queue<std::uint64_t>(view).push(items.data(), 20), status::aborted);
}

/// Where there is room, and where nothing has come.
TEST(HostQueues, SayThatTheCommunicatorWasAborted) {
  QueueMemory memory(3, 4, 2);
  const host_queue<std::uint64_t> queue(patient(memory.view()));
  std::array<std::uint64_t, 4> items{11, 12, 13, 14};
  ASSERT_EQ(queue.push(items.data(), 3), status::done);
  memory.wait_ctx().abort_flag = 1;
  EXPECT_EQ(queue.try_push(items.data(), 1), status::aborted);
  EXPECT_EQ(queue.try_push(items.data(), 0), status::aborted);
  EXPECT_EQ(queue.push(items.data(), 1), status::aborted);
  EXPECT_EQ(queue.push(items.data(), 0), status::aborted);
  EXPECT_EQ(*memory.view().tail, 3U) << "no turn was taken";
  std::array<std::uint64_t, 4> popped{};
  std::size_t got = 7;
  EXPECT_EQ(queue.try_pop(popped.data(), 1, &got), status::done);
  EXPECT_EQ(queue.pop(popped.data() + 1, 1), status::done);
  EXPECT_EQ(queue.pop(popped.data() + 2, 2, &got), status::aborted);
  EXPECT_EQ(got, 1U);
  EXPECT_EQ(popped, (std::array<std::uint64_t, 4>{11, 12, 13, 0}));
  EXPECT_EQ(queue.try_pop(popped.data(), 1, &got), status::aborted);
  EXPECT_EQ(got, 0U);
  EXPECT_EQ(queue.try_pop(popped.data(), 0, &got), status::aborted);
  EXPECT_EQ(queue.pop(popped.data(), 0), status::aborted);
  queue.close();
  EXPECT_EQ(queue.try_pop(popped.data(), 1, &got), status::aborted) << "not closed";
  EXPECT_EQ(queue.pop(popped.data(), 1), status::aborted) << "not closed";
}

template <unsigned kWords>
void run_pair() {
  PairMemory memory(kWords, 6, 4, 1);
  Popped popped;
  std::jthread pops([&] {
    std::minstd_rand random(3);
    std::vector<Words<kWords>> items(64);
    std::uint32_t seen = 0;
    while (seen < kNumbers) {
      // Another object now and then: it goes on where the last one was.
      host_spsc_consumer<Words<kWords>> pair(patient(memory.view()));
      for (int call = 0; call < 10 && seen < kNumbers; ++call) {
        std::size_t got = 0;
        const std::size_t most = std::min<std::size_t>(random() % 64 + 1, kNumbers - seen);
        if (call % 2 == 0)
          EXPECT_EQ(pair.pop(items.data(), most, &got), status::done);
        else if (pair.try_pop(items.data(), most, &got) == status::empty)
          std::this_thread::yield();
        popped.add(items.data(), got);
        seen += static_cast<std::uint32_t>(got);
      }
    }
  });
  std::minstd_rand random(5);
  std::vector<Words<kWords>> items;
  for (std::uint32_t number = 0; number < kNumbers;) {
    host_spsc_producer<Words<kWords>> pair(patient(memory.view()));
    for (int call = 0; call < 10 && number < kNumbers; ++call) {
      items.clear();
      const bool tries = call % 2 == 1;
      for (std::size_t i = random() % (tries ? 16 : 100) + 1; i > 0 && number < kNumbers; --i)
        items.push_back(Words<kWords>::make(0, number++));
      if (!tries)
        EXPECT_EQ(pair.push(items.data(), items.size()), status::done);
      else
        while (pair.try_push(items.data(), items.size()) == status::full) std::this_thread::yield();
    }
  }
  pops.join();
  expect_each_once_in_order({popped}, 1);
}

TEST(HostPairs, EveryItemInOrder) {
  run_pair<2>();
  run_pair<3>();
  run_pair<24>();
}

TEST(HostPairs, EndTheirWaits) {
  PairMemory memory(3, 4, 2, 1);
  device::spsc_view view = memory.view();
  view.wait_ctx.time_limit_ns = 2'000'000;
  std::array<std::uint64_t, 17> items{};
  host_spsc_producer<std::uint64_t> pushes(view);
  EXPECT_EQ(pushes.push(items.data(), 17), status::aborted) << "16 have room";
  std::size_t got = 0;
  EXPECT_EQ(host_spsc_consumer<std::uint64_t>(view).pop(items.data(), 17, &got), status::aborted);
  EXPECT_EQ(got, 16U);
  EXPECT_EQ(pushes.try_push(items.data(), 5), status::too_many_items);
}

TEST(HostPairs, SayThatTheCommunicatorWasAborted) {
  PairMemory memory(3, 4, 2, 1);
  host_spsc_producer<std::uint64_t> pushes(patient(memory.view()));
  host_spsc_consumer<std::uint64_t> pops(patient(memory.view()));
  const std::array<std::uint64_t, 3> items{11, 12, 13};
  ASSERT_EQ(pushes.push(items.data(), 3), status::done);
  memory.wait_ctx().abort_flag = 1;
  EXPECT_EQ(pushes.try_push(items.data(), 1), status::aborted);
  EXPECT_EQ(pushes.try_push(items.data(), 0), status::aborted);
  EXPECT_EQ(pushes.push(items.data(), 1), status::aborted);
  EXPECT_EQ(pushes.push(items.data(), 0), status::aborted);
  EXPECT_EQ(*memory.view().sent, 3U);
  std::array<std::uint64_t, 4> popped{};
  std::size_t got = 7;
  EXPECT_EQ(pops.try_pop(popped.data(), 1, &got), status::done);
  EXPECT_EQ(pops.pop(popped.data() + 1, 1), status::done);
  EXPECT_EQ(pops.pop(popped.data() + 2, 2, &got), status::aborted);
  EXPECT_EQ(got, 1U);
  EXPECT_EQ(popped, (std::array<std::uint64_t, 4>{11, 12, 13, 0}));
  EXPECT_EQ(pops.try_pop(popped.data(), 1, &got), status::aborted);
  EXPECT_EQ(got, 0U);
  EXPECT_EQ(pops.try_pop(popped.data(), 0, &got), status::aborted);
  EXPECT_EQ(pops.pop(popped.data(), 0), status::aborted);
}

}  // namespace
}  // namespace polypath::test
