// Damaged files of other processes: with any damage nothing crashes, nothing false is believed, and
// one line says why.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <random>

#include "registry/records.hpp"
#include "registry_test.hpp"
#include "system_calls.hpp"

namespace polypath::test {
namespace {

using testing::HasSubstr;
using testing::Optional;
namespace fs = std::filesystem;

/// Another process with a record and a flight, whose file the test may spoil.
class Damage : public RegistryTest {
 protected:
  Damage() : child_([this](const Steps& steps) { return tell(steps); }) {
    if (!child_.wait()) ADD_FAILURE() << "the other process ended";
  }

  [[nodiscard]] fs::path file() const { return file_of(child_.pid()); }
  /// The other process tells the same again.
  void tell_again() {
    child_.go();
    EXPECT_TRUE(child_.wait());
  }
  /// Writes `bytes` into the other process's file.
  void spoil(std::size_t offset, const std::vector<char>& bytes) const {
    spoil(file(), offset, bytes);
  }
  static void spoil(const fs::path& path, std::size_t offset, const std::vector<char>& bytes) {
    const int descriptor = open(path.c_str(), O_WRONLY);
    EXPECT_EQ(pwrite(descriptor, bytes.data(), bytes.size(), static_cast<off_t>(offset)),
              static_cast<ssize_t>(bytes.size()));
    close(descriptor);
  }
  static bool sees_record(Registry& registry) { return registry.find(handle_of(1)).has_value(); }
  static bool sees_flight(Registry& registry) { return !sizes_of_others(registry).empty(); }
  static bool sees_nothing(Registry& registry) {
    return !sees_record(registry) && !sees_flight(registry);
  }

 private:
  int tell(const Steps& steps) {
    Registry own(folder(), kEager);
    FlightToken token;
    do {
      own.end(token);
      token = own.start(flight_of(1));
      if (!own.publish(record_of(1, 1)) || token.value == 0) return 1;
    } while (steps.meet());
    return 0;
  }

  Child child_;
};

std::vector<char> random_bytes(std::size_t count, std::mt19937& random) {
  std::vector<char> bytes(count);
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

TEST_F(Damage, NoneIsSeenWhereThereIsNone) {
  Registry registry(folder(), kEager);
  EXPECT_EQ(said_by([&] { EXPECT_TRUE(sees_record(registry) && sees_flight(registry)); }), "");
}

TEST_F(Damage, OtherVersion_IsIgnoredAndKept) {
  const std::uint32_t next = kLayoutVersion + 1;
  const auto* bytes = reinterpret_cast<const char*>(&next);
  spoil(offsetof(StoredHeader, version), std::vector<char>(bytes, bytes + sizeof next));
  const std::string output = said_by([&] {
    Registry registry(folder(), kEager);
    EXPECT_EQ(registry.why_unusable(), "");
    EXPECT_TRUE(sees_nothing(registry));
    EXPECT_TRUE(sees_nothing(registry));
  });
  EXPECT_THAT(output, HasSubstr("another version"));
  EXPECT_EQ(registry_lines(output), 1);
  EXPECT_TRUE(fs::exists(file())) << "its owner lives";
}

TEST_F(Damage, ChangedHeaderByte_IsDamage) {
  for (std::size_t at = 0; at < sizeof(StoredHeader); ++at) {
    std::ifstream stream(file(), std::ios::binary);
    std::vector<char> header(sizeof(StoredHeader));
    stream.read(header.data(), sizeof(StoredHeader));
    const char right = header[at];
    spoil(at, {static_cast<char>(~right)});
    const std::string output = said_by([&] {
      Registry registry(folder(), kEager);
      EXPECT_TRUE(sees_nothing(registry)) << at;
    });
    EXPECT_EQ(registry_lines(output), 1) << output;
    spoil(at, {right});
  }
}

TEST_F(Damage, ShortenedFile_IsRecreatedByItsOwner) {
  const std::size_t lengths[] = {0,    10,      kFlightsOffset, kFlightsOffset + 100, kMemoryOffset,
                                 9000, 100'000, kFileBytes - 1};
  Registry registry(folder(), kEager);
  for (const std::size_t length : lengths) {
    ASSERT_TRUE(sees_record(registry) && sees_flight(registry));
    fs::resize_file(file(), length);
    // Open already: what is left may be seen. Opened now: it is damaged.
    if (const auto record = registry.find(handle_of(1))) {
      EXPECT_EQ(*record, record_of(1, 1));
    }
    EXPECT_EQ(sees_flight(registry), length >= kFlightsOffset + sizeof(StoredFlight)) << length;
    const std::string output = said_by([&] {
      Registry late(folder(), kEager);
      EXPECT_EQ(late.why_unusable(), "");
      EXPECT_TRUE(sees_nothing(late));
    });
    EXPECT_EQ(registry_lines(output), 1) << output;
    tell_again();
    Registry late(folder(), kEager);
    EXPECT_TRUE(sees_record(late) && sees_flight(late));
  }
  EXPECT_TRUE(sees_record(registry) && sees_flight(registry));
}

TEST_F(Damage, RandomBytesAreNeverBelieved) {
  std::mt19937 random(7);
  Registry registry(folder(), kEager);
  ASSERT_TRUE(sees_record(registry));
  const std::string output = said_by([&] {
    for (int round = 0; round < 300; ++round) {
      const std::size_t bytes = 1 + random() % 2000;
      spoil(
          random() % 2 == 0 ? random() % (kMemoryOffset - bytes) : random() % (kFileBytes - bytes),
          random_bytes(bytes, random));
      if (const auto record = registry.find(handle_of(1))) {
        EXPECT_EQ(*record, record_of(1, 1));
      }
      for (const std::uint64_t size : sizes_of_others(registry)) EXPECT_EQ(size, 1u);
      if (round % 50 == 0) {
        Registry late(folder(), kEager);
        EXPECT_EQ(late.why_unusable(), "");
        static_cast<void>(sees_nothing(late));
      }
    }
    const auto whole_file = random_bytes(kFileBytes, random);
    spoil(0, whole_file);
    EXPECT_TRUE(sees_nothing(registry));
  });
  EXPECT_THAT(output, HasSubstr("damaged inside"));
  EXPECT_LE(registry_lines(output), 1 + 6)
      << output;  // once for the first, once for each of the later ones
  tell_again();
  EXPECT_TRUE(sees_record(registry) && sees_flight(registry)) << "what is told anew is whole";
}

/// Half of a new record over an old one, as a reader would see it in the middle of a write.
TEST_F(Damage, SeveralDamagedFiles_AreLoggedOnce) {
  Child second([&](const Steps& steps) {
    Registry own(folder(), kEager);
    own.start(flight_of(2));
    return steps.meet() ? 0 : 1;
  });
  ASSERT_TRUE(second.wait());
  Registry registry(folder(), kEager);
  ASSERT_EQ(sizes_of_others(registry), (std::vector<std::uint64_t>{1, 2}));
  const auto spoil_both = [&](std::size_t offset) {
    for (const auto& path : files())
      if (path != file_of(getpid())) spoil(path, offset, {'?'});
  };
  spoil_both(kFlightsOffset + offsetof(StoredFlight, bytes));
  const std::string inside = said_by([&] { EXPECT_FALSE(sees_flight(registry)); });
  EXPECT_EQ(registry_lines(inside), 1) << inside;
  system_calls().reset();
  EXPECT_FALSE(sees_flight(registry));
  EXPECT_EQ(system_calls().pread, 2) << "no hope that they are whole the next time";
  spoil_both(offsetof(StoredHeader, magic));
  const std::string header = said_by([&] {
    Registry late(folder(), kEager);
    EXPECT_TRUE(sees_nothing(late));
  });
  EXPECT_EQ(registry_lines(header), 1) << header;
  tell_again();
  EXPECT_EQ(sizes_of_others(registry), std::vector<std::uint64_t>{1}) << "looked at again";
  spoil(kFlightsOffset + offsetof(StoredFlight, bytes), {'?'});
  system_calls().reset();
  EXPECT_FALSE(sees_flight(registry));
  EXPECT_GT(system_calls().pread, 3) << "there was hope for the one that had been whole";
}

TEST_F(Damage, HalfWrittenRecord_IsNotFound) {
  Registry registry(folder(), kEager);
  const std::size_t bucket =
      kMemoryOffset + bucket_of(handle_of(1)) * kBucketPlaces * sizeof(StoredMemory);
  std::uint64_t id = 0;
  std::ifstream stream(file(), std::ios::binary);
  stream.seekg(offsetof(StoredHeader, id));
  stream.read(reinterpret_cast<char*>(&id), sizeof id);
  const StoredMemory next = stored(record_of(1, 2), 9, id);
  const auto* bytes = reinterpret_cast<const char*>(&next);
  spoil(bucket, std::vector<char>(bytes, bytes + offsetof(StoredMemory, bytes)));
  const std::string output = said_by([&] { EXPECT_FALSE(sees_record(registry)); });
  EXPECT_EQ(registry_lines(output), 1);
  spoil(bucket, std::vector<char>(bytes, bytes + sizeof next));
  EXPECT_THAT(registry.find(handle_of(1)), Optional(record_of(1, 2)));
}

TEST_F(Damage, IrregularFiles_AreSkipped) {
  const fs::path in = folder();
  ASSERT_EQ(mkfifo((in / "5000000-0123456789abcdea").c_str(), 0600), 0);
  fs::create_symlink("/dev/zero", in / "5000000-0123456789abcdeb");
  fs::create_directory(in / "5000000-0123456789abcdec");
  const std::string output = said_by([&] {
    Registry registry(folder(), kEager);
    EXPECT_TRUE(sees_record(registry) && sees_flight(registry));
  });
  EXPECT_EQ(registry_lines(output), 1) << output;
}

}  // namespace
}  // namespace polypath::test
