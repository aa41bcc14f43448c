// Counts beyond 2^31 and 2^32: the bytes of a call's buffers, and what ranks compare.
#include <gtest/gtest.h>

#include <set>

#include "mpi/call.hpp"

namespace polypath::preload::mpi {
namespace {

constexpr std::size_t kGiB = std::size_t{1} << 30;
constexpr Operation kOperations[] = {Operation::all_reduce, Operation::reduce_scatter,
                                     Operation::all_gather, Operation::broadcast,
                                     Operation::all_to_all};
/// Sizes of a part; one that is cut to 31 or 32 bits is another one of them, or 0.
constexpr std::size_t kParts[] = {5,
                                  2 * kGiB - 1,
                                  2 * kGiB,
                                  2 * kGiB + 5,
                                  4 * kGiB,
                                  4 * kGiB + 5,
                                  (std::size_t{1} << 40) + 5,
                                  (std::size_t{1} << 40) + 4 * kGiB + 5};

Call call_of(Operation operation, bool in_place) {
  Call call{};
  call.operation = operation;
  call.send = &call;
  call.recv = &call;
  call.in_place = in_place;
  return call;
}

/// "sent/received" in bytes; of one buffer for both, that.
std::string bytes_of(Operation operation, bool in_place, std::size_t part, int ranks) {
  Buffer buffers[2]{};
  const std::size_t count = buffers_of(call_of(operation, in_place), part, ranks, buffers);
  std::string text = std::to_string(buffers[0].bytes);
  return count == 1 ? text : text + "/" + std::to_string(buffers[1].bytes);
}

TEST(MpiSizes, BuffersOfPartsBeyond32Bits) {
  // 2^31 + 5 elements of 8 bytes, eight ranks.
  constexpr std::size_t part = 8 * (2 * kGiB + 5);
  EXPECT_EQ(bytes_of(Operation::all_reduce, false, part, 8), "17179869224/17179869224");
  EXPECT_EQ(bytes_of(Operation::all_reduce, true, part, 8), "17179869224");
  EXPECT_EQ(bytes_of(Operation::broadcast, false, part, 8), "17179869224");
  EXPECT_EQ(bytes_of(Operation::reduce_scatter, false, part, 8), "137438953792/17179869224");
  EXPECT_EQ(bytes_of(Operation::reduce_scatter, true, part, 8), "137438953792");
  EXPECT_EQ(bytes_of(Operation::all_gather, false, part, 8), "17179869224/137438953792");
  EXPECT_EQ(bytes_of(Operation::all_gather, true, part, 8), "137438953792");
  EXPECT_EQ(bytes_of(Operation::all_to_all, false, part, 8), "137438953792/137438953792");
  EXPECT_EQ(bytes_of(Operation::all_to_all, true, part, 8), "137438953792");
}

TEST(MpiSizes, RoomBesideTheBuffersBeyond32Bits) {
  constexpr std::size_t part = 2 * kGiB + 5;
  for (const Operation operation : kOperations)
    EXPECT_EQ(spare_bytes_of(call_of(operation, false), part, 8), 0U);
  EXPECT_EQ(spare_bytes_of(call_of(Operation::reduce_scatter, true), part, 8), 2147483653U);
  EXPECT_EQ(spare_bytes_of(call_of(Operation::all_to_all, true), part, 8), 17179869224U);
  EXPECT_EQ(spare_bytes_of(call_of(Operation::all_reduce, true), part, 8), 0U);
}

TEST(MpiSizes, RanksTellOtherArgumentsApart) {
  std::set<std::int64_t> seen;
  std::size_t count = 0;
  const auto add = [&](const Arguments& arguments, std::size_t part) {
    const std::int64_t number = arguments_of(arguments, part);
    EXPECT_GE(number, 0) << "its negative has to exist";
    EXPECT_EQ(number, arguments_of(arguments, part));
    seen.insert(number);
    ++count;
  };
  for (const std::size_t part : kParts)
    for (const Operation operation : kOperations) {
      const int types = combines(operation) ? 11 : 1;
      const int roots = operation == Operation::broadcast ? 9 : 1;
      for (int type = 0; type < types; ++type)
        for (int op = 0; op < (combines(operation) ? 5 : 1); ++op)
          for (int root = 0; root < roots; ++root) add({operation, type, op, root}, part);
    }
  EXPECT_EQ(seen.size(), count);
}

// 0: libpolypath reads the setting, and has 30 s where there is none.
TEST(MpiTimeLimit, UnsetTimeout_IsOneDay) {
  EXPECT_EQ(86'400'000U, time_limit_of(nullptr));
  EXPECT_EQ(86'400'000U, time_limit_of(""));
  EXPECT_EQ(0U, time_limit_of("15000"));
}

}  // namespace
}  // namespace polypath::preload::mpi
