// What lies where in a registry file, and what tells whole values from others; all without a file.
#include <gmock/gmock.h>

#include <cstring>

#include "registry/files.hpp"
#include "registry/tables.hpp"
#include "registry_test.hpp"

namespace polypath::test {
namespace {

using testing::Optional;

/// Whether each change of one bit makes the value one that is not whole.
template <typename Stored>
bool each_bit_counts(const Stored& value, std::uint64_t id) {
  for (std::size_t bit = 0; bit < 8 * sizeof value; ++bit) {
    Stored changed = value;
    auto* bytes = reinterpret_cast<unsigned char*>(&changed);
    bytes[bit / 8] = static_cast<unsigned char>(bytes[bit / 8] ^ (1U << (bit % 8)));
    if (whole(changed, id)) return false;
  }
  return true;
}

TEST(RegistryLayout, ValuesComeBackAndEachBitIsGuarded) {
  const InFlightTransfer flight = flight_of(7);
  const MemoryRecord record = record_of(3, 4);
  EXPECT_EQ(loaded(stored(flight, 5)), flight);
  EXPECT_EQ(loaded(stored(flight_of(6), 5)).destination, FlightEnd::of_host(6));
  EXPECT_EQ(loaded(stored(record, 9, 5)), record);
  EXPECT_TRUE(each_bit_counts(stored(flight, 5), 5));
  EXPECT_TRUE(each_bit_counts(stored(record, 9, 5), 5));
  EXPECT_TRUE(each_bit_counts(stored_header(5), 5));
}

TEST(RegistryLayout, ValueIsIntactOnlyInItsOwnFile) {
  const StoredMemory value = stored(record_of(3, 4), 9, 5);
  EXPECT_TRUE(whole(value, 5));
  EXPECT_FALSE(whole(value, 6));
  EXPECT_FALSE(whole(StoredMemory{}, 5)) << "what was never written";
  EXPECT_FALSE(whole(StoredFlight{}, 5));
}

TEST(RegistryLayout, HalfWrittenValue_IsNotIntact) {
  const StoredMemory before = stored(record_of(1, 1), 1, 5);
  const StoredMemory after = stored(record_of(1, 2), 2, 5);
  for (std::size_t written = 1; written < sizeof after; ++written) {
    StoredMemory torn = before;
    std::memcpy(&torn, &after, written);
    if (std::memcmp(&torn, &before, sizeof torn) != 0 &&
        std::memcmp(&torn, &after, sizeof torn) != 0) {
      EXPECT_FALSE(whole(torn, 5)) << written << " bytes";
    }
  }
}

TEST(RegistryFileName, ParsesOnlyWhatToStringWrites) {
  for (const bool complete : {true, false}) {
    const RegistryFileName name{.pid = 4711, .id = 0xabc, .complete = complete};
    EXPECT_THAT(parse_file_name(to_string(name)), Optional(name));
  }
  for (const char* text :
       {"", ".", "..", "-", "4711", "4711-", "4711-abc", "-0000000000000abc", "0-0000000000000abc",
        "4711-0000000000000abcd", "4711-0000000000000abg", "4711-0000000000000ab ",
        "-1-0000000000000abc", "old-4711-0000000000000abc", "new-", "new-4711", "x0000000000000abc",
        "99999999999-0000000000000abc"})
    EXPECT_EQ(parse_file_name(text), std::nullopt) << text;
}

TEST(MemoryTable, SameHandle_ReplacesRecord) {
  MemoryTable table;
  const auto first = table.publish(record_of(1, 1));
  const auto second = table.publish(record_of(1, 2));
  EXPECT_EQ(second.written, first.written);
  EXPECT_EQ(second.cleared, std::nullopt);
  ASSERT_EQ(table.entries().size(), 1u);
  EXPECT_EQ(table.entries().at(first.written).record, record_of(1, 2));
  EXPECT_EQ(table.withdraw(record_of(1, 1).base), std::nullopt) << "that base is no record's";
  EXPECT_THAT(table.withdraw(record_of(1, 2).base), Optional(first.written));
  EXPECT_TRUE(table.entries().empty());
}

TEST(MemoryTable, SameBase_ReplacesRecord) {
  MemoryTable table;
  const auto first = table.publish(record_of(1, 7));
  const auto second = table.publish(record_of(2, 7));
  ASSERT_NE(bucket_of(handle_of(1)), bucket_of(handle_of(2)));
  EXPECT_THAT(second.cleared, Optional(first.written));
  ASSERT_EQ(table.entries().size(), 1u);
  EXPECT_EQ(table.entries().at(second.written).record, record_of(2, 7));
}

TEST(MemoryTable, HandleAndBaseOfTwo_ReplacesBoth) {
  MemoryTable table;
  const auto first = table.publish(record_of(1, 1));
  const auto second = table.publish(record_of(2, 2));
  const auto third = table.publish(record_of(2, 1));
  EXPECT_THAT(third.cleared, Optional(first.written));
  EXPECT_EQ(third.written, second.written);
  EXPECT_EQ(table.entries().size(), 1u);
  EXPECT_EQ(table.withdraw(record_of(2, 2).base), std::nullopt);
}

/// Numbers whose handles fall into one bucket.
std::vector<std::uint64_t> numbers_of_one_bucket(std::size_t count) {
  std::vector<std::uint64_t> numbers;
  for (std::uint64_t number = 0; numbers.size() < count; ++number)
    if (bucket_of(handle_of(number)) == 5) numbers.push_back(number);
  return numbers;
}

TEST(MemoryTable, SameBaseAndBucket_IsOverwritten) {
  const auto numbers = numbers_of_one_bucket(2);
  MemoryTable table;
  const auto first = table.publish(record_of(numbers[0], 1));
  const auto second = table.publish(record_of(numbers[1], 1));
  EXPECT_EQ(second.written, first.written);
  EXPECT_EQ(second.cleared, std::nullopt) << "it is written over";
  EXPECT_EQ(table.entries().size(), 1u);
}

TEST(MemoryTable, FullBucket_LosesOldest) {
  const auto numbers = numbers_of_one_bucket(kBucketPlaces + 2);
  MemoryTable table;
  std::vector<std::uint32_t> places;
  for (std::size_t at = 0; at < kBucketPlaces; ++at)
    places.push_back(table.publish(record_of(numbers[at], at)).written);
  table.publish(record_of(numbers[0], 0));  // now the youngest
  EXPECT_EQ(table.publish(record_of(numbers[kBucketPlaces], kBucketPlaces)).written, places[1]);
  EXPECT_EQ(table.publish(record_of(numbers[kBucketPlaces + 1], kBucketPlaces + 1)).written,
            places[2]);
  EXPECT_EQ(table.entries().size(), kBucketPlaces);
  EXPECT_EQ(table.withdraw(record_of(0, 1).base), std::nullopt);
}

/// Real handles differ in a few bits only: a counter, an address.
TEST(MemoryTable, SimilarHandles_SpreadOverBuckets) {
  for (std::size_t word = 0; word < sizeof(IpcHandle) / 8; ++word) {
    for (const std::uint64_t step : {1ULL, 2ULL << 20, 1ULL << 40}) {
      std::vector<std::size_t> counts(kBuckets);
      for (std::uint64_t number = 0; number < 2048; ++number) {
        IpcHandle handle{};
        const std::uint64_t value = number * step;
        std::memcpy(&handle[word * 8], &value, sizeof value);
        ++counts[bucket_of(handle)];
      }
      EXPECT_LE(std::ranges::max(counts), kBucketPlaces) << "word " << word << ", step " << step;
    }
  }
}

InFlightTransfer flight_until(std::uint64_t until_ns) {
  InFlightTransfer flight = flight_of(1);
  flight.until_ns = until_ns;
  return flight;
}

TEST(FlightTable, TakesLowestFreeSlotUntilFull) {
  FlightTable table;
  std::vector<FlightToken> tokens;
  for (std::size_t at = 0; at < kFlights; ++at) {
    tokens.push_back(table.start(flight_until(100), 10, true));
    EXPECT_EQ(FlightTable::place_of(tokens.back()), at);
  }
  EXPECT_EQ(table.start(flight_until(100), 10, true).value, 0u) << "full";
  EXPECT_TRUE(table.end(tokens[17]));
  EXPECT_FALSE(table.end(tokens[17])) << "it has ended";
  const FlightToken again = table.start(flight_until(100), 10, true);
  EXPECT_EQ(FlightTable::place_of(again), 17u);
  EXPECT_NE(again.value, tokens[17].value);
  EXPECT_FALSE(table.end(tokens[17])) << "the place is another flight's";
  EXPECT_FALSE(table.end({}));
}

TEST(FlightTable, ExpiredFlight_FreesItsSlot) {
  FlightTable table;
  EXPECT_EQ(table.start(flight_until(10), 10, true).value, 0u) << "over before it began";
  const FlightToken first = table.start(flight_until(11), 10, true);
  const FlightToken second = table.start(flight_until(20), 11, true);
  EXPECT_EQ(FlightTable::place_of(second), FlightTable::place_of(first));
  EXPECT_FALSE(table.end(first));
  const auto ended = table.end(second);
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->flight, flight_until(20));
  EXPECT_TRUE(ended->published);
}

}  // namespace
}  // namespace polypath::test
