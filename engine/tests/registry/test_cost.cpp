// What a call costs: how often it asks the kernel, and that the folder is read when it has changed
// only.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "registry/files.hpp"
#include "registry/records.hpp"
#include "registry_test.hpp"
#include "system_calls.hpp"

namespace polypath::test {
namespace {

constexpr int kOthers = 7;

/// A registry among seven other processes, of which the first `flying` have flights.
class Cost : public RegistryTest {
 protected:
  void start(int flying) {
    for (int at = 0; at < kOthers; ++at) {
      children_.push_back(std::make_unique<Child>([this, at, flying](const Steps& steps) {
        Registry own(folder(), kEager);
        own.publish(record_of(static_cast<std::uint64_t>(at), static_cast<std::uint64_t>(at)));
        if (at < flying)
          for (std::uint64_t flight = 0; flight < 8; ++flight) own.start(flight_of(flight));
        return steps.meet() ? 0 : 1;
      }));
      ASSERT_TRUE(children_.back()->wait());
    }
    registry_ = std::make_unique<Registry>(folder(), kEager);
    settle();
  }

  /// Looks until the folder's last change lies in the past: its clock stands still for
  /// milliseconds.
  void settle() {
    do {
      usleep(1000);
      system_calls().reset();
      registry_->others(flights_);
    } while (system_calls().openat > 0);
    system_calls().reset();
  }

  [[nodiscard]] Registry& registry() const { return *registry_; }
  std::vector<InFlightTransfer>& flights() { return flights_; }
  std::vector<std::unique_ptr<Child>>& children() { return children_; }

 private:
  std::vector<std::unique_ptr<Child>> children_;
  std::unique_ptr<Registry> registry_;
  std::vector<InFlightTransfer> flights_;
};

TEST_F(Cost, OthersReadsEachFileOnce) {
  start(3);
  registry().others(flights());
  EXPECT_EQ(flights().size(), 3u * 8);
  EXPECT_EQ(system_calls().lstat, 1);
  EXPECT_EQ(system_calls().fstat, 1);
  EXPECT_EQ(system_calls().pread, kOthers);
  EXPECT_EQ(system_calls().fcntl, 3);
  EXPECT_EQ(system_calls().all(), 2 + kOthers + 3);
}

TEST_F(Cost, KilledProcess_IsSeenWithoutFolderRead) {
  start(3);
  ASSERT_TRUE(registry().find(handle_of(0)));
  children()[0]->kill();
  registry().others(flights());
  EXPECT_EQ(flights().size(), 2u * 8);
  EXPECT_FALSE(registry().find(handle_of(0)));
  EXPECT_TRUE(registry().find(handle_of(1)));
  EXPECT_EQ(system_calls().openat, 0);
}

TEST_F(Cost, TornFileOfKilledProcess_IsNoDamage) {
  start(1);
  const auto file = file_of(children()[0]->pid());
  children()[0]->kill();
  std::fstream(file, std::ios::in | std::ios::out | std::ios::binary).seekp(kFlightsOffset) << '?';
  system_calls().reset();
  EXPECT_EQ(said_by([&] { registry().others(flights()); }), "");
  EXPECT_TRUE(flights().empty());
  EXPECT_EQ(system_calls().openat, 0);
}

/// One folder time for two changes, as from a clock that stands still for milliseconds.
TEST_F(Cost, ProcessOfTheSameTick_IsSeen) {
  start(0);
  const auto set_time = [&](const timespec& time) {
    const timespec times[] = {{.tv_sec = 0, .tv_nsec = UTIME_OMIT}, time};
    ASSERT_EQ(utimensat(AT_FDCWD, folder().c_str(), times, 0), 0);
  };
  // Still to come when it is read, and less than the second from which on a clock was set back.
  constexpr std::int64_t kSoon = 900'000'000;
  constexpr std::int64_t kSecond = 1'000'000'000;
  const auto now_ns = [] {
    timespec now = {};
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * kSecond + now.tv_nsec;
  };
  std::int64_t tick_ns = 0;
  timespec tick = {};
  do {
    tick_ns = now_ns() + kSoon;
    tick = {.tv_sec = tick_ns / kSecond, .tv_nsec = tick_ns % kSecond};
    set_time(tick);
    registry().others(flights());
  } while (now_ns() >= tick_ns);  // the machine stopped this process for a tick or more
  Child late([&](const Steps& steps) {
    Registry own(folder(), kEager);
    own.start(flight_of(1));
    return steps.meet() ? 0 : 1;
  });
  ASSERT_TRUE(late.wait());
  set_time(tick);
  registry().others(flights());
  EXPECT_EQ(flights().size(), 1u);
}

TEST_F(Cost, ClockSetBack_CausesNoFolderReads) {
  start(0);
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  const timespec times[] = {{.tv_sec = 0, .tv_nsec = UTIME_OMIT},
                            {.tv_sec = now.tv_sec + 3600, .tv_nsec = 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, folder().c_str(), times, 0), 0);
  registry().others(flights());
  system_calls().reset();
  registry().others(flights());
  EXPECT_EQ(system_calls().openat, 0);
}

/// More processes than a test can start: one process holds the locks of many.
TEST_F(Cost, DescriptorsAreLeftToTheProgram) {
  constexpr int kMany = 300;
  Child many([&](const Steps& steps) {
    std::filesystem::create_directory(folder());
    chmod(folder().c_str(), 0700);
    for (std::uint64_t id = 1; id <= kMany; ++id) {
      const auto name = to_string(RegistryFileName{.pid = 5'000'000, .id = id, .complete = true});
      const int file = open((folder() + "/" + name).c_str(), O_RDWR | O_CREAT, 0600);
      const StoredHeader header = stored_header(id);
      if (!lock_for_life(file) || pwrite(file, &header, sizeof header, 0) != sizeof header ||
          ftruncate(file, kFileBytes) != 0)
        return 1;
    }
    return steps.meet() ? 0 : 2;
  });
  ASSERT_TRUE(many.wait());
  const std::string output = said_by([&] { start(0); });
  EXPECT_EQ(registry_lines(output), 1 + kOthers) << output;
  registry().others(flights());
  EXPECT_EQ(system_calls().pread, 256);
}

TEST_F(Cost, StartAndEnd_TakeTwoSystemCallsEach) {
  start(0);
  Registry calm(folder(), {.now_ns = kByTestClock.now_ns});
  calm.end(calm.start(flight_of(1)));  // it has looked now
  system_calls().reset();
  const FlightToken token = calm.start(flight_of(1));
  EXPECT_EQ(system_calls().fstat, 1);
  EXPECT_EQ(system_calls().pwrite, 1);
  EXPECT_EQ(system_calls().all(), 2);
  calm.end(token);
  EXPECT_EQ(system_calls().all(), 4);
  calm.end(token);
  EXPECT_EQ(system_calls().all(), 4) << "there was nothing to end";
}

TEST_F(Cost, FindReadsOneBucketPerProcess) {
  start(0);
  EXPECT_FALSE(registry().find(handle_of(1000)));
  EXPECT_EQ(system_calls().pread, kOthers);
  EXPECT_EQ(system_calls().all(), 2 + kOthers);
}

TEST_F(Cost, NewProcess_CausesFolderRead) {
  start(0);
  Child late([&](const Steps& steps) {
    Registry own(folder(), kEager);
    own.start(flight_of(1));
    return steps.meet() ? 0 : 1;
  });
  ASSERT_TRUE(late.wait());
  registry().others(flights());
  EXPECT_EQ(flights().size(), 1u);
  EXPECT_GE(system_calls().openat, 1);
  settle();
  for (int call = 0; call < 100; ++call) registry().others(flights());
  EXPECT_EQ(system_calls().openat, 0);
}

/// As in a program: others are looked for now and then.
class CostByTheClock : public RegistryTest {
 protected:
  /// So long after it was made others may have come.
  static constexpr RegistryTimes kTimes{.now_ns = kByTestClock.now_ns};
  /// One transfer, as a context tells of it.
  void transfer() {
    registry_.others(flights_);
    registry_.end(token_);
    InFlightTransfer flight = flight_of(1);
    flight.until_ns = test_now_ns + kTimes.long_flight_ns;
    token_ = registry_.start(flight);
  }

  Registry registry_{folder(), kTimes};
  std::vector<InFlightTransfer> flights_;
  FlightToken token_;
};

TEST_F(CostByTheClock, AloneATransferAsksTheKernelNothing) {
  transfer();
  EXPECT_THAT(files(), testing::SizeIs(1)) << "others find this process";
  system_calls().reset();
  for (int i = 0; i < 1000; ++i) transfer();
  EXPECT_NE(token_.value, 0u);
  EXPECT_EQ(system_calls().all(), 0);
  // Now and then it looks.
  test_now_ns += kTimes.look_every_ns;
  transfer();
  const int looks = system_calls().all();
  EXPECT_GE(looks, 2);
  for (int i = 0; i < 1000; ++i) transfer();
  EXPECT_EQ(system_calls().all(), looks);
}

TEST_F(CostByTheClock, NewProcess_SeesLaterStarts) {
  transfer();
  Child late([&](const Steps& steps) {
    Registry own(folder(), kByTestClock);
    if (!sizes_of_others(own).empty()) return 1;
    if (!steps.meet()) return 2;
    return sizes_of_others(own) == std::vector<std::uint64_t>{1} ? 0 : 3;
  });
  ASSERT_TRUE(late.wait());
  test_now_ns += kTimes.look_every_ns;
  transfer();
  late.go();
  EXPECT_EQ(late.result(), 0);
}

/// A process that starts during the transfer sees it.
TEST_F(CostByTheClock, LongTransfer_IsPublishedAtOnce) {
  InFlightTransfer flight = flight_of(1);
  flight.until_ns = test_now_ns + kTimes.long_flight_ns + 1;
  const FlightToken token = registry_.start(flight);
  const auto seen = [&] {
    Child late([&](const Steps&) {
      Registry own(folder(), kByTestClock);
      return static_cast<int>(sizes_of_others(own).size());
    });
    return late.result();
  };
  EXPECT_EQ(seen(), 1);
  registry_.end(token);
  EXPECT_EQ(seen(), 0);
}

/// find() reads the files of other processes at any time, also between two ticks.
TEST_F(CostByTheClock, FindSeesNewProcessAtOnce) {
  transfer();
  Child late([&](const Steps& steps) {
    Registry own(folder(), kByTestClock);
    own.publish(record_of(1, 1));
    return steps.meet() ? 0 : 1;
  });
  ASSERT_TRUE(late.wait());
  EXPECT_TRUE(registry_.find(handle_of(1)));
}

}  // namespace
}  // namespace polypath::test
