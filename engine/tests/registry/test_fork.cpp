// Forked children of a process that uses the registry.
#include <unistd.h>

#include "registry/registry.hpp"
#include "registry_test.hpp"

namespace polypath::test {
namespace {

using testing::ElementsAre;
using testing::Optional;
using Forked = RegistryTest;
namespace fs = std::filesystem;

TEST_F(Forked, ChildIsSeparateProcess) {
  Registry registry(folder(), kEager);
  ASSERT_TRUE(registry.publish(record_of(1, 1)));
  const FlightToken token = registry.start(flight_of(1));
  const fs::path file = file_of(getpid());
  Child child(
      [&](const Steps& steps) {
        registry.end(token);
        if (registry.find(handle_of(1)) != record_of(1, 1)) return 1;
        if (sizes_of_others(registry) != std::vector<std::uint64_t>{1}) return 2;
        registry.publish(record_of(2, 2));
        registry.start(flight_of(2));
        if (!steps.meet()) return 3;
        registry.close();
        return fs::exists(file) ? 0 : 4;
      },
      true);
  ASSERT_TRUE(child.wait());
  EXPECT_THAT(registry.find(handle_of(2)), Optional(record_of(2, 2)));
  EXPECT_THAT(sizes_of_others(registry), ElementsAre(2));
  child.go();
  EXPECT_EQ(child.result(), 0);
  EXPECT_EQ(files(), std::vector{file});
  Child witness([&](const Steps&) {
    Registry own(folder(), kEager);
    return own.find(handle_of(1)) == record_of(1, 1) &&
                   sizes_of_others(own) == std::vector<std::uint64_t>{1}
               ? 0
               : 1;
  });
  EXPECT_EQ(witness.result(), 0) << "the parent still lives";
}

TEST_F(Forked, IdleChild_LeavesParentsFiles) {
  const auto shared = process_registry(folder());
  ASSERT_TRUE(shared->publish(record_of(1, 1)));
  auto alone = std::make_unique<Registry>(folder(), kEager);
  ASSERT_TRUE(alone->publish(record_of(2, 2)));
  Child child([&](const Steps&) { return 0; }, true);
  EXPECT_EQ(child.result(), 0);
  Child destroyer([&](const Steps&) {
    shared->close();
    alone.reset();
    return 0;
  });
  EXPECT_EQ(destroyer.result(), 0);
  Child witness([&](const Steps&) {
    Registry own(folder(), kEager);
    const bool is_first_found = own.find(handle_of(1)) == record_of(1, 1);
    return is_first_found && own.find(handle_of(2)) == record_of(2, 2) ? 0 : 1;
  });
  EXPECT_EQ(witness.result(), 0);
  shared->close();
}

}  // namespace
}  // namespace polypath::test
