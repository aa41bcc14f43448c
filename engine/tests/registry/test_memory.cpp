// Memory records between processes.
#include <thread>

#include "registry/records.hpp"
#include "registry_test.hpp"

namespace polypath::test {
namespace {

using testing::Optional;
using MemoryOfOthers = RegistryTest;

TEST_F(MemoryOfOthers, TwoProcesses_FindEachOthersMemory) {
  Registry registry(folder(), kEager);
  ASSERT_TRUE(registry.publish(record_of(1, 10)));
  Child child([&](const Steps& steps) {
    Registry own(folder(), kEager);
    if (own.find(handle_of(1)) != record_of(1, 10)) return 1;
    if (!own.publish(record_of(2, 20))) return 2;
    return steps.meet() ? 0 : 3;
  });
  ASSERT_TRUE(child.wait());
  EXPECT_THAT(registry.find(handle_of(2)), Optional(record_of(2, 20)));
  EXPECT_EQ(registry.find(handle_of(1)), std::nullopt) << "its own memory is no other's";
  EXPECT_EQ(registry.find(handle_of(3)), std::nullopt);
  child.go();
  EXPECT_EQ(child.result(), 0);
  EXPECT_EQ(registry.find(handle_of(2)), std::nullopt) << "its owner has ended";
}

TEST_F(MemoryOfOthers, FourProcesses_FindEachOthersMemory) {
  constexpr std::uint64_t kProcesses = 4;
  constexpr std::uint64_t kRecords = 500;
  std::vector<std::unique_ptr<Child>> children;
  for (std::uint64_t self = 0; self < kProcesses; ++self)
    children.push_back(std::make_unique<Child>([this, self](const Steps& steps) {
      Registry own(folder(), kEager);
      for (std::uint64_t at = 0; at < kRecords; ++at)
        if (const auto number = self * kRecords + at; !own.publish(record_of(number, number)))
          return 1;
      if (!steps.meet()) return 2;
      for (std::uint64_t number = 0; number < kProcesses * kRecords; ++number) {
        const bool other = number / kRecords != self;
        const auto record = own.find(handle_of(number));
        if (other ? record != record_of(number, number) : record.has_value()) return 3;
      }
      return steps.meet() ? 0 : 4;
    }));
  for (const auto& child : children) ASSERT_TRUE(child->wait());
  for (const auto& child : children) child->go();
  for (const auto& child : children) EXPECT_TRUE(child->wait());
  for (const auto& child : children) child->go();
  for (const auto& child : children) EXPECT_EQ(child->result(), 0);
}

TEST_F(MemoryOfOthers, LatestRecord_IsFound) {
  Registry registry(folder(), kEager);
  Child child([&](const Steps& steps) {
    Registry own(folder(), kEager);
    own.publish(record_of(1, 10));
    own.publish(record_of(2, 20));
    if (!steps.meet()) return 1;
    own.publish(record_of(1, 11));  // the same handle elsewhere
    own.publish(record_of(3, 20));  // freed, and allocated again at the same address
    return steps.meet() ? 0 : 2;
  });
  ASSERT_TRUE(child.wait());
  EXPECT_THAT(registry.find(handle_of(1)), Optional(record_of(1, 10)));
  EXPECT_THAT(registry.find(handle_of(2)), Optional(record_of(2, 20)));
  child.go();
  ASSERT_TRUE(child.wait());
  EXPECT_THAT(registry.find(handle_of(1)), Optional(record_of(1, 11)));
  EXPECT_EQ(registry.find(handle_of(2)), std::nullopt) << "its memory was freed";
  EXPECT_THAT(registry.find(handle_of(3)), Optional(record_of(3, 20)));
}

TEST_F(MemoryOfOthers, MoreRecordsThanFit_NewestAreFound) {
  constexpr std::uint64_t kMany = 3 * kPlaces;
  Registry registry(folder(), kEager);
  Child child([&](const Steps& steps) {
    Registry own(folder(), kEager);
    for (std::uint64_t number = 0; number < kMany; ++number)
      if (!own.publish(record_of(number, number))) return 1;
    return steps.meet() ? 0 : 2;
  });
  ASSERT_TRUE(child.wait());
  std::uint64_t count = 0;
  for (std::uint64_t number = 0; number < kMany; ++number) {
    const auto record = registry.find(handle_of(number));
    if (!record) continue;
    ++count;
    EXPECT_EQ(*record, record_of(number, number));
  }
  EXPECT_EQ(count, kPlaces);
  for (std::uint64_t number = kMany - 4000; number < kMany; ++number)
    EXPECT_TRUE(registry.find(handle_of(number))) << number;
}

/// Several threads and processes publish the same handles over and over; each record found is a
/// whole one.
TEST_F(MemoryOfOthers, RecordsAreNeverTorn) {
  constexpr std::uint64_t kHandles = 4;
  const auto publish = [&](std::uint64_t begin) {
    return [this, begin](const Steps& steps) {
      Registry own(folder(), kEager);
      own.publish(record_of(0, begin));
      steps.done();
      for (std::uint64_t version = begin;; ++version)
        own.publish(record_of(version % kHandles, version));
      return 0;
    };
  };
  Child first(publish(1'000'000));
  Child second(publish(2'000'000));
  ASSERT_TRUE(first.wait() && second.wait());
  std::atomic<int> count{0};
  const auto look = [&] {
    Registry registry(folder(), kEager);
    count = 0;
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < 2; ++thread)
      threads.emplace_back([&] {
        for (int at = 0; at < 20'000; ++at) {
          const std::uint64_t number = static_cast<std::uint64_t>(at) % kHandles;
          const auto record = registry.find(handle_of(number));
          if (!record) continue;
          ++count;
          ASSERT_EQ(*record, record_of(number, record->buffer_id));
        }
      });
  };
  // A writer that is stopped within a write for long makes the record count as damaged: look again.
  std::string output = "not looked";
  for (int round = 0; round < 8 && !output.empty(); ++round) output = said_by(look);
  EXPECT_GT(count, 1000);
  EXPECT_EQ(output, "") << "nothing was taken for damage";
}

}  // namespace
}  // namespace polypath::test
