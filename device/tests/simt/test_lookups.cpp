// What the machine looks things up in, next to the plainest thing that does the same: rows of
// random additions, removals and questions.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "simt/cache.hpp"
#include "simt/grid.hpp"
#include "simt/pollers.hpp"
#include "simt/store_buffer.hpp"

namespace polypath::simt {
namespace {

using Random = std::mt19937_64;

/// Few places, so that they meet: in lines, at their ends, in two pages, and far away.
std::uintptr_t any_address(Random& random) {
  constexpr std::array<std::uintptr_t, 4> kBases{0x10000, 0x10fe0, 0x7f0000000000, 0x7f0000200000};
  return kBases[random() % kBases.size()] + random() % 200;
}

TEST(Pollers, FindReturnsPollersInAddressOrder) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Random random(seed);
    std::vector<Thread> threads(8);
    Pollers pollers;
    std::vector<std::pair<std::uintptr_t, Thread*>> known;  // in the order of addition
    const auto in_order = [&](std::uintptr_t begin, std::uintptr_t end) {
      auto chosen = known;
      std::erase_if(chosen,
                    [&](const auto& poll) { return poll.first < begin || poll.first >= end; });
      std::ranges::stable_sort(chosen, {}, [](const auto& poll) { return poll.first; });
      std::vector<Thread*> matches;
      for (const auto& [address, thread] : chosen) matches.push_back(thread);
      return matches;
    };
    for (int step = 0; step < 2000; ++step) {
      if (known.empty() || random() % 2 == 0) {
        known.emplace_back(any_address(random), &threads[random() % threads.size()]);
        pollers.add(known.back().first, known.back().second);
      } else if (random() % 2 == 0) {
        const auto gone = known[random() % known.size()];
        known.erase(std::ranges::find(known, gone));  // of equal ones, the first
        pollers.remove(gone.first, gone.second);
      }
      ASSERT_EQ(pollers.empty(), known.empty());
      const std::uintptr_t begin = any_address(random);
      const std::uintptr_t end = begin + (random() % 8 == 0 ? 0x200000 : random() % 40);
      std::vector<Thread*> matches;
      pollers.find(begin, end, matches);
      ASSERT_EQ(matches, in_order(begin, end)) << "seed " << seed << ", step " << step;
    }
    EXPECT_EQ(pollers.all(), in_order(0, UINTPTR_MAX));
  }
}

TEST(StoreBuffer, OverlappingFindsStoresByBytes) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Random random(seed);
    StoreBuffer stores;
    std::vector<StorePtr> known;  // by their serials
    std::uint64_t serial = 0;
    for (int step = 0; step < 2000; ++step) {
      if (known.empty() || random() % 5 < 3) {
        const StorePtr store = StorePtr::make();
        store->serial = ++serial;
        store->to = any_address(random);
        store->bytes = random() % 4 == 0 ? 1 + random() % 70000 : 1U << random() % 5;
        known.push_back(store);
        stores.add(store);
      } else {
        const StorePtr gone = known[random() % known.size()];
        std::erase(known, gone);
        stores.remove(*gone);
      }
      if (random() % 1000 == 0) {
        known.clear();
        stores.clear();
      }
      std::size_t bytes = 0;
      for (const StorePtr& store : known) bytes += store->bytes;
      ASSERT_EQ(stores.bytes(), bytes);
      ASSERT_EQ(stores.all().size(), known.size());
      const std::uintptr_t from = any_address(random);
      const std::size_t count = random() % 8 == 0 ? 0x500000 : random() % 80;
      const std::uint64_t before = random() % 2 == 0 ? UINT64_MAX : serial - random() % 10;
      std::vector<StorePtr> expected = known;
      std::erase_if(expected, [&](const StorePtr& store) {
        return count == 0 || store->serial >= before || store->to >= from + count ||
               store->to + store->bytes <= from;
      });
      ASSERT_EQ(stores.overlapping(from, count, before), expected)
          << "seed " << seed << ", step " << step;
    }
  }
}

TEST(Cache, HoldsEntriesUntilCleared) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Random random(seed);
    Cache cache;
    std::map<std::uintptr_t, std::uint16_t> known;
    for (int step = 0; step < 2000; ++step) {
      const std::uintptr_t granule = any_address(random) << (random() % 2 == 0 ? 32 : 0);
      if (random() % 300 == 0) {
        known.clear();
        cache.clear();
      } else if (random() % 2 == 0) {
        const auto bit = static_cast<std::uint16_t>(1U << random() % 16);
        known[granule] |= bit;
        cache[granule].valid |= bit;
      }
      ASSERT_EQ(cache.empty(), known.empty());
      const std::uintptr_t address = random() % 2 == 0 ? granule : any_address(random);
      const auto expected = known.find(address);
      const CachedBytes* const entry = cache.find(address);
      ASSERT_EQ(entry != nullptr, expected != known.end()) << "seed " << seed << ", step " << step;
      if (entry != nullptr) {
        ASSERT_EQ(entry->valid, expected->second);
      }
    }
  }
}

struct Counted {
  explicit Counted(int& living) : all(&living) { ++*all; }
  ~Counted() { --*all; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  int* all;
  std::size_t holders = 0;
};

TEST(Held, ObjectLivesUntilItsLastOwner) {
  int living = 0;
  auto first = Held<Counted>::make(living);
  {
    const auto second = first;
    auto third = second;
    first = Held<Counted>::make(living);
    EXPECT_EQ(living, 2);
    third = std::move(first);
    EXPECT_FALSE(first);
    EXPECT_TRUE(second);
    first = third;
    EXPECT_EQ(first, third);
    EXPECT_NE(first, second);
  }
  EXPECT_EQ(living, 1);
  first.reset();
  EXPECT_EQ(living, 0);
}

}  // namespace
}  // namespace polypath::simt
