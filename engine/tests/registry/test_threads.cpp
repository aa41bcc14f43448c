// One registry in several threads, and a fork while they are at work.
#include <array>
#include <thread>

#include <unistd.h>

#include "registry/registry.hpp"
#include "registry_test.hpp"

namespace polypath::test {
namespace {

using RegistryThreads = RegistryTest;

/// All that a thread does, over and over; records and flights of its own.
bool work(Registry& registry, std::uint64_t self, int rounds) {
  std::vector<InFlightTransfer> flights;
  bool right = true;
  for (int round = 0; round < rounds; ++round) {
    const MemoryRecord record = record_of(self, self);
    right = registry.publish(record) && right;
    const FlightToken token = registry.start(flight_of(self));
    right = token.value != 0 && right;
    registry.others(flights);
    for (const InFlightTransfer& flight : flights) right = flight.bytes >= 100 && right;
    static_cast<void>(registry.find(handle_of(100 + self)));
    registry.end(token);
  }
  return right;
}

TEST_F(RegistryThreads, ShareOneRegistry) {
  Child child([&](const Steps& steps) {
    Registry own(folder(), kEager);
    own.publish(record_of(100, 100));
    own.start(flight_of(100));
    steps.done();
    for (std::uint64_t round = 0;; ++round) {
      own.publish(record_of(101 + round % 3, 101 + round % 3));
      own.end(own.start(flight_of(101)));
    }
    return 0;
  });
  ASSERT_TRUE(child.wait());
  Registry registry(folder(), kEager);
  {
    std::vector<std::jthread> threads;
    for (std::uint64_t self = 0; self < 4; ++self)
      threads.emplace_back([&, self] { EXPECT_TRUE(work(registry, self, 1000)); });
  }
  EXPECT_EQ(registry.find(handle_of(100)), record_of(100, 100));
  child.kill();
  EXPECT_EQ(sizes_of_others(registry), std::vector<std::uint64_t>{});
}

TEST_F(RegistryThreads, GetOneRegistryOfTheProcess) {
  for (int round = 0; round < 100; ++round) {
    const std::string setting = folder() + std::to_string(round);
    std::array<std::shared_ptr<Registry>, 4> got;
    {
      std::vector<std::jthread> threads;
      for (auto& registry : got)
        threads.emplace_back([&] { registry = process_registry(setting); });
    }
    for (const auto& registry : got) EXPECT_EQ(registry, got[0]);
  }
}

TEST_F(RegistryThreads, ForkDuringCall_ChildStillWorks) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer's own allocator does not survive a fork beside other threads";
#endif
  Registry registry(folder(), kEager);
  ASSERT_TRUE(registry.publish(record_of(50, 50)));
  std::jthread thread([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) EXPECT_TRUE(work(registry, 1, 1));
  });
  for (int fork = 0; fork < 50; ++fork) {
    Child child([&](const Steps&) {
      alarm(60);  // ends the child if a lock is never released
      if (!registry.publish(record_of(2, 2))) return 1;
      if (registry.find(handle_of(50)) != record_of(50, 50)) return 2;
      registry.close();
      return 0;
    });
    EXPECT_EQ(child.result(), 0);
  }
}

}  // namespace
}  // namespace polypath::test
