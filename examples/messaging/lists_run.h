// What the kernels of lists.cuh are told, on the host and on the device, and what records hold.
#pragma once

#include <cstdint>

#include "polypath/device/envelope.hpp"
#include "polypath/device/pool_view.hpp"

namespace messaging_example {

struct ListsRun {
  polypath::device::pool_view view;
  std::uint32_t records;
  std::uint32_t buckets;
  std::uint32_t* heads;          ///< of each bucket: a block, or pool::kNoBlock
  std::uint64_t* sums;           ///< of each bucket: the words of its records
  std::uint32_t* record_counts;  ///< of each bucket: its records
  std::uint32_t* failed;         ///< records for which there was no memory
};

POLYPATH_HOST_DEVICE constexpr std::uint32_t mixed(std::uint32_t value) {
  value = (value ^ value >> 16) * 0x7FEB352DU;
  value = (value ^ value >> 15) * 0x846CA68BU;
  return value ^ value >> 16;
}
POLYPATH_HOST_DEVICE constexpr std::uint32_t bucket_of(std::uint32_t record,
                                                       std::uint32_t buckets) {
  return mixed(record) % buckets;
}
/// 1 to 100: most records are short.
POLYPATH_HOST_DEVICE constexpr std::uint32_t words_of(std::uint32_t record) {
  const std::uint32_t random = mixed(record + 0x9E3779B9U);
  return 1 + random % (random >> 16 & 3 ? 14 : 100);
}
POLYPATH_HOST_DEVICE constexpr std::uint32_t word_of(std::uint32_t record, std::uint32_t place) {
  return mixed(record * 128 + place);
}

inline constexpr std::uint32_t kListsThreads = 128;

}  // namespace messaging_example
