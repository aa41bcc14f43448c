// Sums of random floats by ncclAllReduce, compared with the sum in rank order.
#pragma once

#include "nccl_ranks.hpp"

namespace polypath::test {

inline constexpr int kFloat32 = 7;
inline constexpr int kSum = 0;

inline std::vector<float> floats_of(int rank, std::size_t count, unsigned seed = 0) {
  std::mt19937 random(seed * 97 + static_cast<unsigned>(rank) + 1);
  std::normal_distribution<float> value(0, 100);
  std::vector<float> values(count);
  for (float& element : values) element = value(random);
  return values;
}
template <typename T>
Bytes bytes_of(const std::vector<T>& values) {
  const auto* const first = reinterpret_cast<const std::byte*>(values.data());
  return {first, first + values.size() * sizeof(T)};
}
/// In rank order, one after another.
inline Bytes sum_of(int ranks, std::size_t count, unsigned seed = 0) {
  std::vector<float> sum = floats_of(0, count, seed);
  for (int rank = 1; rank < ranks; ++rank) {
    const std::vector<float> values = floats_of(rank, count, seed);
    for (std::size_t i = 0; i < count; ++i) sum[i] += values[i];
  }
  return bytes_of(sum);
}

/// Every byte; what differs first.
inline void expect_floats(const Bytes& are, const Bytes& should, const char* what, int rank) {
  ASSERT_EQ(are.size(), should.size());
  for (std::size_t at = 0; at < are.size(); at += 4) {
    if (std::memcmp(&are[at], &should[at], 4) == 0) continue;
    float is = 0;
    float expected = 0;
    std::memcpy(&is, &are[at], 4);
    std::memcpy(&expected, &should[at], 4);
    ADD_FAILURE() << what << ", rank " << rank << ", element " << at / 4 << " of " << are.size() / 4
                  << ": " << is << ", not " << expected;
    return;
  }
}

inline void expect_sum(NcclRank& member, std::size_t count, unsigned seed, std::size_t stream = 0) {
  DeviceBytes send(count * 4);
  DeviceBytes recv(count * 4);
  send.put(0, bytes_of(floats_of(member.rank, count, seed)));
  NCCL_OK(member.nccl.ncclAllReduce(send.get(), recv.get(), count, kFloat32, kSum, member.comm,
                                    member.streams[stream]));
  member.synchronize();
  expect_floats(recv.all(), sum_of(member.size, count, seed), "sum", member.rank);
  EXPECT_TRUE(recv.is_guarded());
  EXPECT_EQ(send.all(), bytes_of(floats_of(member.rank, count, seed)));
}

}  // namespace polypath::test
