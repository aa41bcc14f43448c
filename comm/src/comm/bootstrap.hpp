// From a host all-gather to a control segment: ranks exchange their identities, and all come
// to the same verdict.
//
//   1. exchange: each rank's Hello, rank 0's with where its board is. The verdict on them is a pure
//      function: all ranks reach the same.
//   2. each opens the board, and looks whether its GPU reaches those of the others.
//   3. exchange: what went wrong in that; then the board takes over.
//
// Both exchanges take place on all ranks even after a failure, so that no rank is left waiting.
#pragma once

#include <chrono>
#include <functional>
#include <span>
#include <string>

#include "comm/control_segment.hpp"
#include "comm/host_all_gather.hpp"
#include "comm/rank_error.hpp"
#include "comm/rank_table.hpp"
#include "polypath/types.h"

namespace polypath {

/// What a rank tells the others first. Its size, and the place and meaning of the first three
/// members, never change, so that versions can tell that they differ.
struct Hello {
  static constexpr std::uint64_t kMagic = 0x50502d48454c4c4f;  // "PP-HELLO"
  static constexpr std::uint32_t kProtocol = 2;                ///< changes with board and records

  std::uint64_t magic = kMagic;
  std::uint32_t protocol = kProtocol;
  std::array<char, 32> version{};  ///< of the library

  std::int32_t rank = 0;
  std::int32_t size = 0;
  std::uint32_t user = 0;
  std::int32_t gpu = 0;  ///< as its process numbers them
  std::array<unsigned char, 16> gpu_uuid{};
  MachineId machine;
  std::uint64_t pid_namespace = 0;
  ProcessId process;
  ControlSegmentId board;        ///< rank 0's
  std::int32_t board_file = -1;  ///< rank 0's; -1: it has none
  std::int64_t timeout_ms = 0;
  RankError problem;  ///< what went wrong before
  polypath_sum_order sum_order = POLYPATH_SUM_ORDER_RANK;

  std::array<unsigned char, 356> unused{};
};
static_assert(sizeof(Hello) == 1024 && sizeof(polypath_sum_order) == 4);

/// The setting that a rank has another value of than rank 0; empty: none.
std::string differing_order(polypath_sum_order order, std::size_t rank, polypath_sum_order first);

/// The record of this process; the caller fills in rank, size, GPU, board and limit.
Hello make_hello();

/// Why these ranks cannot be one communicator, with what to do; empty when they can.
std::string verdict(std::span<const Hello> hellos);

struct BootstrapResult {
  std::shared_ptr<ControlSegment> board;
  Members members;
  std::chrono::milliseconds limit;  ///< rank 0's
  bool reaches_all = true;          ///< every rank's GPU the memory of all others
};

/// What a rank found out of the others.
struct Reached {
  RankError problem;
  std::int32_t reaches_all = 1;  ///< 0: its GPU cannot address the memory of every other one
};

/// Bytes that a rank gives to each of the two exchanges of join().
inline constexpr std::array kJoinRecords{sizeof(Hello), sizeof(Reached)};

/// `hello` is this rank's, its `problem` set when it cannot take part. `number_of` gives the number
/// of the GPU with a UUID in this process, -1 for none. `reach` says whether this rank's GPU can
/// address the memory of all others, and throws when they cannot work together. Throws
/// CommunicatorError, on all ranks alike, and what the exchange throws.
BootstrapResult join(Hello hello, const HostAllGather& exchange,
                     const std::function<int(const std::array<unsigned char, 16>&)>& number_of,
                     const std::function<bool(const Members&)>& reach);

}  // namespace polypath
