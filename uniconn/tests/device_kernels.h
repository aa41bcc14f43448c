// A row of calls that a kernel makes one after another, the same on all ranks but for its numbers:
// the one agreement between host and device. C++17, plain data.
#pragma once

#include <cstddef>
#include <cstdint>

namespace polypath::test {

enum class DeviceOp : std::uint32_t {
  post,          ///< to `root`, with the signal
  acknowledge,   ///< of `root`
  post_quietly,  ///< to `root`, without a signal
  wait,
  tell,  ///< the signal of `root` by a plain store, as Wait promises to order it
  barrier,
  all_gather,
  all_gatherv,
  all_reduce,
  reduce,
  all_to_all,
  all_to_allv,
  broadcast,
  gather,
  gatherv,
  scatter,
  scatterv
};

/// Type and operator of reductions, of what there is a kernel for.
enum class DeviceSum : std::uint32_t {
  float32_sum,
  float64_prod,
  float16_sum,
  bfloat16_min,
  int32_max,
  int8_avg,
  uint16_land,
  uint64_bxor
};

inline constexpr std::uint32_t kDeviceSums = 8;

/// Element types of what is only moved, by their bytes.
struct ThreeWords {
  std::uint32_t words[3];
};

struct DeviceCall {
  DeviceOp op;
  std::uint32_t group;  ///< a ThreadGroup
  DeviceSum sum;
  std::uint32_t element_bytes;  ///< 1, 8 or 12; of reductions the type's
  std::uint32_t is_in_place;
  std::uint32_t block;  ///< which makes it
  std::int32_t root;    ///< or the other rank
  std::uint32_t reserved;
  std::uint64_t count;
  const void* send;
  void* recv;
  std::uint64_t* signal;
  std::uint64_t value;
  const std::size_t* counts;  ///< of vector forms; of AlltoAllv those that are sent
  const std::size_t* displs;
  const std::size_t* rdispls;  ///< of AlltoAllv
  // Before the call the group copies `in` to `fill`, after it `look` to `out`.
  const void* in;
  void* fill;
  std::uint64_t in_bytes;
  const void* look;
  void* out;
  std::uint64_t out_bytes;
};

/// The kernel's one parameter.
struct DeviceRow {
  void* comm;  ///< as toDevice() gives it
  const DeviceCall* calls;
  std::uint64_t count;
};

}  // namespace polypath::test
