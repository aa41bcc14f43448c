#include "support/contents.hpp"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace mpi_bench {
namespace {

std::vector<std::byte> bytes_of(const Memory& memory) {
  std::vector<std::byte> bytes(memory.bytes());
  memory.read(0, bytes);
  return bytes;
}

void flip(Memory& memory, std::size_t offset) {
  std::array<std::byte, 1> byte;
  memory.read(offset, byte);
  byte[0] ^= std::byte{1};
  memory.write(offset, byte);
}

TEST(Contents, NoByteOfPoisonIsRight) {
  for (const std::size_t size : {std::size_t{1}, std::size_t{1001}, (std::size_t{19} << 20) + 5}) {
    Memory memory(MemoryKind::host, size);
    const Message message(0, size, 5);
    message.poison(memory);
    EXPECT_EQ(message.compare(memory).count, size);
    EXPECT_EQ(message.compare(memory).first, 0U);
    message.fill(memory);
    EXPECT_EQ(message.compare(memory).count, 0U);
  }
}

TEST(Contents, EveryWrongByteIsFound) {
  const std::size_t size = 300;
  Memory memory(MemoryKind::host, size);
  const Message message(0, size, 5);
  message.fill(memory);
  for (std::size_t at = 0; at < size; ++at) {
    flip(memory, at);
    EXPECT_EQ(message.compare(memory).count, 1U);
    EXPECT_EQ(message.compare(memory).first, at);
    flip(memory, at);
  }
}

TEST(Contents, LongMessage_EveryWrongByteIsFound) {
  const std::size_t size = (std::size_t{33} << 20) + 3;
  Memory memory(MemoryKind::host, size);
  const Message message(0, size, 6);
  message.fill(memory);
  for (const std::size_t at : {size - 1, (std::size_t{32} << 20), (std::size_t{16} << 20) - 1}) {
    flip(memory, at);
    EXPECT_EQ(message.compare(memory).first, at);
  }
  EXPECT_EQ(message.compare(memory).count, 3U);
}

TEST(Contents, MessagesLieWhereTheyAreSaidToLie) {
  Memory memory(MemoryKind::host, 600);
  Message(0, 600, 1).fill(memory);
  Message(200, 100, 2).fill(memory);
  EXPECT_EQ(Message(200, 100, 2).compare(memory).count, 0U);
  EXPECT_EQ(Message(0, 200, 1).compare(memory).count, 0U);
  EXPECT_EQ(Message(0, 600, 1).compare(memory).first, 200U);
}

TEST(Contents, DifferInEveryNumberOfTheSeed) {
  const auto contents = [](std::uint64_t seed) {
    Memory memory(MemoryKind::host, 64);
    Message(0, 64, seed).fill(memory);
    return bytes_of(memory);
  };
  const auto expected = contents(seed_of({0, 1, 2}));
  EXPECT_EQ(contents(seed_of({0, 1, 2})), expected);
  for (const std::uint64_t other : {seed_of({1, 1, 2}), seed_of({0, 2, 2}), seed_of({0, 1, 3}),
                                    seed_of({1, 0, 2}), seed_of({0, 1}), seed_of({0, 0, 1, 2})})
    EXPECT_NE(contents(other), expected);
}

TEST(Contents, ShiftedMessage_IsWrong) {
  Memory memory(MemoryKind::host, 1 << 16);
  Message(0, 1 << 16, 9).fill(memory);
  for (const std::size_t shift : {std::size_t{1}, std::size_t{8}, std::size_t{4096}})
    EXPECT_GT(Message(shift, 1024, 9).compare(memory).count, 1000U);
}

TEST(HostMemory, NothingPastItsEnd) {
  Memory memory(MemoryKind::host, 10);
  std::vector<std::byte> bytes(4);
  EXPECT_THROW(memory.write(7, bytes), std::out_of_range);
  EXPECT_THROW(memory.read(11, std::span(bytes).first(0)), std::out_of_range);
  EXPECT_NO_THROW(memory.read(6, bytes));
}

}  // namespace
}  // namespace mpi_bench
