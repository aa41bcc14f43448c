// When files come and go: normal ends, killed processes, folders that vanish.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "registry/registry.hpp"
#include "registry_test.hpp"
#include "system_calls.hpp"

namespace polypath::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Optional;
using testing::SizeIs;
using Life = RegistryTest;
namespace fs = std::filesystem;

fs::perms mode_of(const fs::path& path) { return fs::symlink_status(path).permissions(); }

TEST_F(Life, NothingIsMadeBeforeItIsUsed) {
  const Registry registry(folder(), kEager);
  EXPECT_FALSE(fs::exists(folder()));
}

TEST_F(Life, FilesArePrivateAndLeaveWithLastProcess) {
  {
    Registry registry(folder(), kEager);
    EXPECT_EQ(registry.why_unusable(), "");
    EXPECT_EQ(mode_of(folder()), fs::perms::owner_all);
    ASSERT_THAT(files(), SizeIs(1));
    EXPECT_EQ(mode_of(files()[0]), fs::perms::owner_read | fs::perms::owner_write);
    {
      Child other([&](const Steps&) {
        Registry own(folder(), kEager);
        return own.why_unusable().empty() && files().size() == 2 ? 0 : 1;
      });
      EXPECT_EQ(other.result(), 0);
    }
    EXPECT_THAT(files(), SizeIs(1));
  }
  EXPECT_FALSE(fs::exists(folder()));
}

TEST_F(Life, ModesIgnoreTheProgramsMask) {
  const mode_t before = umask(0);
  Registry registry(folder(), kEager);
  EXPECT_EQ(registry.why_unusable(), "");
  umask(before);
  EXPECT_EQ(mode_of(folder()), fs::perms::owner_all);
  EXPECT_EQ(mode_of(files().at(0)), fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(Life, NextProcess_RemovesFilesOfKilled) {
  Child child([&](const Steps& steps) {
    Registry own(folder(), kEager);
    own.publish(record_of(1, 1));
    return steps.meet() ? 0 : 1;
  });
  ASSERT_TRUE(child.wait());
  const fs::path left = file_of(child.pid());
  child.kill();
  ASSERT_TRUE(fs::exists(left));
  Registry registry(folder(), kEager);
  EXPECT_TRUE(registry.publish(record_of(2, 2)));
  EXPECT_FALSE(fs::exists(left));
  EXPECT_EQ(registry.find(handle_of(1)), std::nullopt);
  EXPECT_THAT(files(), SizeIs(1));
}

TEST_F(Life, OnlyRegistryFilesAreCleanedAway) {
  fs::create_directory(folder());
  fs::permissions(folder(), fs::perms::owner_all);
  const auto make = [&](const char* name) { std::ofstream(fs::path(folder()) / name) << "text"; };
  make("4000000-0123456789abcdef");      // of a process that is no more
  make("new-4000000-0123456789abcdee");  // half made, and too young to be sure
  make("new-4000000-0123456789abcded");  // half made long ago
  make("notes");
  fs::create_directory(fs::path(folder()) / "4000000-0123456789abcdec");
  fs::last_write_time(fs::path(folder()) / "new-4000000-0123456789abcded",
                      fs::file_time_type::clock::now() - std::chrono::minutes(1));
  {
    Registry registry(folder(), kEager);
    EXPECT_EQ(registry.why_unusable(), "");
  }
  std::vector<std::string> names;
  for (const auto& file : files()) names.push_back(file.filename());
  EXPECT_THAT(names, testing::UnorderedElementsAre("new-4000000-0123456789abcdee", "notes",
                                                   "4000000-0123456789abcdec"));
}

TEST_F(Life, ExitClosesLeakedRegistry) {
  for (const bool by_exit : {true, false}) {
    Child child(
        [&](const Steps& steps) {
          static auto* const leaked = new std::shared_ptr<Registry>(process_registry(folder()));
          if (!(*leaked)->publish(record_of(1, 1)) || !steps.meet()) return 1;
          return process_registry(folder()) == *leaked ? 0 : 2;
        },
        by_exit);
    ASSERT_TRUE(child.wait());
    const fs::path file = file_of(child.pid());
    ASSERT_TRUE(fs::exists(file));
    child.go();
    EXPECT_EQ(child.result(), 0);
    EXPECT_EQ(fs::exists(file), !by_exit) << "_exit() runs no destructors";
  }
}

TEST_F(Life, ProcessHasOneRegistryPerFolder) {
  const auto shared = process_registry(folder());
  EXPECT_EQ(process_registry(folder()), shared);
  EXPECT_NE(process_registry(folder() + "2"), shared);
  EXPECT_EQ(shared->why_unusable(), "");
  EXPECT_TRUE(fs::exists(file_of(getpid())));
  shared->close();
  EXPECT_EQ(process_registry(folder()), shared) << "a closed one stays closed";
  EXPECT_NE(process_registry("off")->why_unusable(), "");
  EXPECT_EQ(process_registry("auto"), process_registry(default_registry_folder()));
  EXPECT_EQ(default_registry_folder(), "/dev/shm/polypath-" + std::to_string(geteuid()));
}

TEST_F(Life, ClosedRegistry_IsUnusable) {
  Registry registry(folder(), kEager);
  registry.publish(record_of(1, 1));
  registry.close();
  EXPECT_FALSE(fs::exists(folder()));
  EXPECT_NE(registry.why_unusable(), "");
  EXPECT_FALSE(registry.publish(record_of(1, 1)));
  EXPECT_EQ(registry.start(flight_of(1)).value, 0u);
  registry.close();
  EXPECT_FALSE(fs::exists(folder()));
}

TEST_F(Life, RecordsSurviveRemovalOfFileAndFolder) {
  Registry registry(folder(), kEager);
  ASSERT_TRUE(registry.publish(record_of(1, 1)));
  ASSERT_NE(registry.start(flight_of(1)).value, 0u);
  const auto seen_by_another = [&] {
    Child witness([&](const Steps&) {
      Registry own(folder(), kEager);
      return own.find(handle_of(1)) == record_of(1, 1) &&
                     sizes_of_others(own) == std::vector<std::uint64_t>{1}
                 ? 0
                 : 1;
    });
    return witness.result() == 0;
  };
  ASSERT_TRUE(seen_by_another());
  fs::remove_all(folder());
  EXPECT_THAT(sizes_of_others(registry), IsEmpty());
  EXPECT_TRUE(seen_by_another()) << "a look at others sees that the folder is gone";
  fs::remove(file_of(getpid()));
  EXPECT_TRUE(registry.publish(record_of(2, 2)));
  EXPECT_TRUE(seen_by_another()) << "a publication sees that the file is gone";
}

/// Closes all descriptors but the standard ones and that of `steps`, as programs do that become
/// daemons.
void close_all_but(const Steps& steps) {
  for (int number = 3; number < 1024; ++number)
    if (number != steps.socket()) close(number);
}

TEST_F(Life, ReusedDescriptors_AreNotWrittenTo) {
  Registry registry(folder(), kEager);
  const fs::path victims = fs::path(folder()).parent_path();
  constexpr int kVictims = 16;
  Child child([&](const Steps& steps) {
    Registry own(folder(), kEager);
    own.publish(record_of(1, 1));
    static_cast<void>(own.find(handle_of(9)));
    close_all_but(steps);
    std::vector<int> reused;
    for (int at = 0; at < kVictims; ++at)
      reused.push_back(open((victims / std::to_string(at)).c_str(), O_RDWR | O_CREAT, 0600));
    if (!own.publish(record_of(2, 2)) || own.start(flight_of(2)).value == 0) return 1;
    static_cast<void>(own.find(handle_of(9)));
    for (const int number : reused)
      if (fcntl(number, F_GETFD) < 0) return 2;  // closed by us
    return steps.meet() ? 0 : 3;
  });
  ASSERT_TRUE(child.wait());
  for (int at = 0; at < kVictims; ++at) EXPECT_EQ(fs::file_size(victims / std::to_string(at)), 0u);
  EXPECT_THAT(registry.find(handle_of(1)), Optional(record_of(1, 1)));
  EXPECT_THAT(registry.find(handle_of(2)), Optional(record_of(2, 2)));
  EXPECT_THAT(sizes_of_others(registry), ElementsAre(2));
  child.go();
  EXPECT_EQ(child.result(), 0);
}

TEST_F(Life, ClosedStandardStreams_AreNotReused) {
  Child child([&](const Steps& steps) {
    for (const int stream : {0, 1, 2}) close(stream);
    Registry own(folder(), kEager);
    if (!own.publish(record_of(1, 1))) return 1;
    for (const int stream : {0, 1, 2})
      if (fcntl(stream, F_GETFD) >= 0) return 2;
    return steps.meet() ? 0 : 3;
  });
  EXPECT_TRUE(child.wait());
}

TEST_F(Life, IncompleteFile_IsNotTakenForStale) {
  int locks = 0;
  before_lock() = [&] {
    ++locks;
    before_lock() = nullptr;
    ASSERT_THAT(files(), SizeIs(1));
    Child other([&](const Steps&) {
      Registry own(folder(), kEager);
      return own.why_unusable().empty() && files().size() == 2 ? 0 : 1;
    });
    EXPECT_EQ(other.result(), 0);
    before_lock() = [&] { ++locks; };
  };
  Registry registry(folder(), kEager);
  EXPECT_EQ(registry.why_unusable(), "");
  before_lock() = nullptr;
  EXPECT_EQ(locks, 1) << "the first file was kept";
  EXPECT_THAT(files(), SizeIs(1));
}

TEST_F(Life, FileVanishesDuringCreation_IsRecreated) {
  before_lock() = [&] {
    fs::remove_all(folder());
    before_lock() = nullptr;
  };
  Registry registry(folder(), kEager);
  EXPECT_EQ(registry.why_unusable(), "");
  EXPECT_THAT(files(), SizeIs(1));
}

TEST_F(Life, FolderVanishesAtOpen_IsRecreated) {
  ASSERT_EQ(mkdir(folder().c_str(), 0700), 0);
  before_lstat() = [&] {
    before_lstat() = nullptr;
    fs::remove(folder());
  };
  Registry registry(folder(), kEager);
  EXPECT_EQ(registry.why_unusable(), "");
  EXPECT_THAT(files(), SizeIs(1));
}

TEST_F(Life, DescriptorsAreNotInherited) {
  Registry registry(folder(), kEager);
  Child child([&](const Steps& steps) {
    Registry own(folder(), kEager);
    own.publish(record_of(1, 1));
    return steps.meet() ? 0 : 1;
  });
  ASSERT_TRUE(child.wait());
  ASSERT_TRUE(registry.find(handle_of(1)));
  int open_files = 0;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (!fs::read_symlink(entry.path(), gone).string().starts_with(folder())) continue;
    ++open_files;
    const int number = std::stoi(entry.path().filename());
    EXPECT_NE(fcntl(number, F_GETFD) & FD_CLOEXEC, 0);
  }
  EXPECT_EQ(open_files, 2) << "its own and the other's";
}

TEST_F(Life, ShortProcesses_LoseAndLeaveNothing) {
  for (const bool beacon_stays : {true, false}) {
    std::unique_ptr<Registry> beacon;
    if (beacon_stays) {
      beacon = std::make_unique<Registry>(folder(), kEager);
      ASSERT_TRUE(beacon->publish(record_of(1, 1)));
    }
    std::vector<std::unique_ptr<Child>> children;
    for (int at = 0; at < 6; ++at)
      children.push_back(std::make_unique<Child>([&](const Steps&) {
        for (int life = 0; life < 100; ++life) {
          Registry own(folder(), kEager);
          if (!own.publish(record_of(2, 2))) return 1;
          if (beacon_stays && own.find(handle_of(1)) != record_of(1, 1)) return 2;
          if (file_of(getpid()).empty()) return 3;
        }
        return 0;
      }));
    for (const auto& child : children) EXPECT_EQ(child->result(), 0);
    EXPECT_THAT(files(), SizeIs(beacon_stays ? 1 : 0));
    beacon.reset();
    EXPECT_FALSE(fs::exists(folder()));
  }
}

}  // namespace
}  // namespace polypath::test
