// What processes say of the load of links, as others see it.
#include <unistd.h>

#include <fstream>

#include "registry/records.hpp"
#include "registry_test.hpp"

namespace polypath::test {
namespace {

using Loads = RegistryTest;

/// All fields follow from `number`; the directions are occupied for `for_ns`.
LoadRecord load_of(std::uint64_t number, std::uint64_t for_ns = 1000 * kSecond) {
  const std::uint64_t now = monotonic_ns();
  return {uuid_of(number),
          {.direct_until_ns = now + for_ns, .staged_until_ns = number, .busy_ns = 3 * number},
          {.measured_until_ns = number + 1, .busy_ns = 5 * number}};
}

std::vector<LoadRecord> records_of_others(Registry& registry, bool all = false) {
  std::vector<InFlightTransfer> flights;
  std::vector<OtherLoad> loads;
  registry.others(flights, loads, all);
  std::vector<LoadRecord> records;
  for (const OtherLoad& load : loads) records.push_back(load.record);
  return records;
}

TEST_F(Loads, OthersSeeTheLastOnesTold) {
  Registry registry(folder(), kEager);
  const std::vector<LoadRecord> first{load_of(1), load_of(2)};
  const std::vector<LoadRecord> last{load_of(2), load_of(3, 0)};
  ASSERT_TRUE(registry.publish(record_of(1, 1)));  // it is there
  Child child([&](const Steps& steps) {
    Registry own(folder(), kEager);
    if (!own.tell_loads(first) || !records_of_others(own, true).empty()) return 1;
    if (!steps.meet()) return 2;
    if (!own.tell_loads(last)) return 3;
    return steps.meet() ? 0 : 4;
  });
  ASSERT_TRUE(child.wait());
  EXPECT_EQ(records_of_others(registry), first);
  child.go();
  ASSERT_TRUE(child.wait());
  EXPECT_EQ(records_of_others(registry), std::vector<LoadRecord>{last[0]}) << "the other is over";
  EXPECT_EQ(records_of_others(registry, true), last);
  std::vector<InFlightTransfer> flights;
  std::vector<OtherLoad> loads;
  registry.others(flights, loads);
  ASSERT_EQ(loads.size(), 1u);
  EXPECT_EQ(loads[0].pid, child.pid());
  child.go();
  EXPECT_EQ(child.result(), 0);
  EXPECT_TRUE(records_of_others(registry, true).empty()) << "its owner has ended";
}

TEST_F(Loads, NoPeers_WritesNothing) {
  Registry registry(folder(), kEager);
  EXPECT_FALSE(registry.tell_loads(std::vector<LoadRecord>{load_of(1)}));
}

TEST_F(Loads, MoreThanFit_FirstOnesAreTold) {
  Registry registry(folder(), kEager);
  ASSERT_TRUE(registry.publish(record_of(1, 1)));
  std::vector<LoadRecord> many;
  for (std::uint64_t i = 0; i < kLoads + 5; ++i) many.push_back(load_of(i + 1));
  Child child([&](const Steps& steps) {
    Registry own(folder(), kEager);
    if (!own.tell_loads(many)) return 1;
    return steps.meet() ? 0 : 2;
  });
  ASSERT_TRUE(child.wait());
  many.resize(kLoads);
  EXPECT_EQ(records_of_others(registry), many);
  child.go();
}

TEST_F(Loads, DamagedRecord_IsLeftOut) {
  Registry registry(folder(), kEager);
  ASSERT_TRUE(registry.publish(record_of(1, 1)));
  const std::vector<LoadRecord> loads{load_of(1), load_of(2)};
  Child child([&](const Steps& steps) {
    Registry own(folder(), kEager);
    if (!own.tell_loads(loads)) return 1;
    return steps.meet() ? 0 : 2;
  });
  ASSERT_TRUE(child.wait());
  {
    const auto check = static_cast<std::streamoff>(kLoadsOffset + offsetof(StoredLoad, check));
    std::fstream file(file_of(child.pid()), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(check);
    const auto right = static_cast<char>(file.get());
    file.seekp(check).put(static_cast<char>(~right));
  }
  const std::string output =
      said_by([&] { EXPECT_EQ(records_of_others(registry), std::vector<LoadRecord>{loads[1]}); });
  EXPECT_EQ(registry_lines(output), 1);
  child.go();
}

}  // namespace
}  // namespace polypath::test
