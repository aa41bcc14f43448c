// What processes have in flight, as others see it.
#include <unistd.h>

#include "registry/records.hpp"
#include "registry_test.hpp"

namespace polypath::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Flights = RegistryTest;

TEST_F(Flights, PeersSeeThemFromStartToEnd) {
  Registry registry(folder(), kEager);
  const InFlightTransfer flight = flight_of(7);
  Child child([&](const Steps& steps) {
    Registry own(folder(), kEager);
    const FlightToken token = own.start(flight);
    if (token.value == 0 || !sizes_of_others(own).empty()) return 1;
    if (!steps.meet()) return 2;
    own.start(flight_of(8));
    if (!steps.meet()) return 3;
    own.end(token);
    own.end(token);
    return steps.meet() ? 0 : 4;
  });
  ASSERT_TRUE(child.wait());
  std::vector<InFlightTransfer> flights{flight_of(1)};
  registry.others(flights);
  EXPECT_THAT(flights, ElementsAre(flight));
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

TEST_F(Flights, FourProcesses_SeeEachOther) {
  std::vector<std::unique_ptr<Child>> children;
  for (std::uint64_t self = 0; self < 4; ++self)
    children.push_back(std::make_unique<Child>([this, self](const Steps& steps) {
      Registry own(folder(), kEager);
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
  Registry registry(folder(), kByTestClock);
  const auto until = [](std::uint64_t number, std::uint64_t ns) {
    InFlightTransfer flight = flight_of(number);
    flight.until_ns = ns;
    return flight;
  };
  Child child([&](const Steps& steps) {
    Registry own(folder(), kByTestClock);
    own.start(until(1, test_now_ns));
    own.start(until(2, test_now_ns + 10));
    own.start(until(3, test_now_ns + 20));
    return steps.meet() ? 0 : 1;
  });
  ASSERT_TRUE(child.wait());
  EXPECT_THAT(sizes_of_others(registry), ElementsAre(2, 3));
  test_now_ns += 9;
  EXPECT_THAT(sizes_of_others(registry), ElementsAre(2, 3));
  test_now_ns += 1;
  EXPECT_THAT(sizes_of_others(registry), ElementsAre(3));
  test_now_ns += 10;
  EXPECT_TRUE(sizes_of_others(registry).empty());
}

TEST_F(Flights, KilledProcess_DoesNotCount) {
  Registry registry(folder(), kEager);
  const auto fly = [&](std::uint64_t number) {
    return [this, number](const Steps& steps) {
      Registry own(folder(), kEager);
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
