// What processes have in flight, as others see it.
#include <unistd.h>

#include "registry/layout.hpp"
#include "registry_test.hpp"

namespace polypath::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Flights = RegistryTest;

TEST_F(Flights, AreSeenByOthersFromStartToEnd) {
  Registry registry(folder());
  const Flight told = flight_of(7);
  Child child([&](const Steps& steps) {
    Registry own(folder());
    const FlightToken token = own.start(told);
    if (token.value == 0 || !sizes_of_others(own).empty()) return 1;
    if (!steps.meet()) return 2;
    own.start(flight_of(8));
    if (!steps.meet()) return 3;
    own.end(token);
    own.end(token);
    return steps.meet() ? 0 : 4;
  });
  ASSERT_TRUE(child.wait());
  std::vector<Flight> flights{flight_of(1)};
  registry.others(flights);
  EXPECT_THAT(flights, ElementsAre(told));
  child.go();
  ASSERT_TRUE(child.wait());
  EXPECT_THAT(sizes_of_others(registry), ElementsAre(7, 8));
  child.go();
  ASSERT_TRUE(child.wait());
  EXPECT_THAT(sizes_of_others(registry), ElementsAre(8));
  child.go();
  EXPECT_EQ(child.result(), 0);
  EXPECT_THAT(sizes_of_others(registry), IsEmpty()) << "its owner has ended";
}

TEST_F(Flights, OfFourProcessesAreSeenByEach) {
  std::vector<std::unique_ptr<Child>> children;
  for (std::uint64_t self = 0; self < 4; ++self)
    children.push_back(std::make_unique<Child>([this, self](const Steps& steps) {
      Registry own(folder());
      std::vector<std::uint64_t> expected;
      for (std::uint64_t number = 0; number < 4 * kFlights; ++number) {
        if (number / kFlights != self)
          expected.push_back(number);
        else if (own.start(flight_of(number)).value == 0)
          return 1;
      }
      if (own.start(flight_of(1)).value != 0) return 2;  // one too many
      if (!steps.meet()) return 3;
      if (sizes_of_others(own) != expected) return 4;
      return steps.meet() ? 0 : 5;
    }));
  for (const auto& child : children) ASSERT_TRUE(child->wait());
  for (const auto& child : children) child->go();
  for (const auto& child : children) EXPECT_TRUE(child->wait());
  for (const auto& child : children) child->go();
  for (const auto& child : children) EXPECT_EQ(child->result(), 0);
}

TEST_F(Flights, CountUntilTheirTime) {
  Registry registry(folder());
  Child child([&](const Steps& steps) {
    Registry own(folder());
    own.start(flight_of(1, 0));
    own.start(flight_of(2, kSecond / 5));
    own.start(flight_of(3, 1000 * kSecond));
    return steps.meet() ? 0 : 1;
  });
  ASSERT_TRUE(child.wait());
  const std::uint64_t patience = monotonic_ns() + 20 * kSecond;
  while (sizes_of_others(registry).size() == 2 && monotonic_ns() < patience) usleep(1000);
  EXPECT_THAT(sizes_of_others(registry), ElementsAre(3));
}

TEST_F(Flights, OfAKilledProcessDoNotCount) {
  Registry registry(folder());
  const auto fly = [&](std::uint64_t number) {
    return [this, number](const Steps& steps) {
      Registry own(folder());
      own.start(flight_of(number));
      own.publish(record_of(number, number));
      return steps.meet() ? 0 : 1;
    };
  };
  Child first(fly(1));
  Child second(fly(2));
  ASSERT_TRUE(first.wait() && second.wait());
  EXPECT_THAT(sizes_of_others(registry), ElementsAre(1, 2));
  EXPECT_TRUE(registry.find(handle_of(1)));
  first.kill();
  EXPECT_THAT(sizes_of_others(registry), ElementsAre(2));
  EXPECT_EQ(registry.find(handle_of(1)), std::nullopt);
  EXPECT_TRUE(registry.find(handle_of(2)));
}

}  // namespace
}  // namespace polypath::test
