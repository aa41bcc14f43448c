// Which library carries a call: a pure function of what NCCL wants to be alike on all ranks
// (operation, count, type, operator) and of what the ranks agreed on when the communicator was
// made. Nothing that one rank alone knows (addresses, streams, capture, what is under way) may come
// in here. And the statistics of that (statistics.cpp).
#pragma once

#include <cuda.h>

#include <array>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <string>

#include "gate/polypath_api.hpp"

namespace polypath::nccl {

using gate::combines;
using gate::kOperationCount;
using gate::Operation;

/// NCCL's name of it.
const char* name_of(Operation operation) noexcept;

/// Why a call goes to NCCL; taken: it does not.
enum class DeclineReason : std::uint8_t {
#define POLYPATH_REASON(name, text) name,
#include "nccl/reasons.def"
};
inline constexpr const char* kReasonTexts[] = {
#define POLYPATH_REASON(name, text) text,
#include "nccl/reasons.def"
};
constexpr const char* text_of(DeclineReason reason) noexcept {
  return kReasonTexts[static_cast<std::size_t>(reason)];
}

/// What all ranks of a communicator have alike.
struct Policy {
  bool reproducible = false;
  /// By operation: bit b of `measured`, something is known of calls of 2^b bytes and less than
  /// twice that; of `faster`, that polypath is faster.
  std::array<std::uint64_t, kOperationCount> measured{};
  std::array<std::uint64_t, kOperationCount> faster{};

  friend bool operator==(const Policy&, const Policy&) = default;
};

/// Whether there are calls that it takes.
bool takes_any(const Policy& policy) noexcept;

/// Bytes of an element; 0: a type that polypath has not.
std::size_t bytes_of_type(int type) noexcept;
/// Types that polypath has not are of floats.
bool is_float(int type) noexcept;

/// `reduction` where the operation combines. `count`, `type` and `reduction` are NCCL's.
DeclineReason choose(const Policy& policy, Operation operation, std::size_t count, int type,
                     int reduction, int ranks) noexcept;

/// ncclCollConfig_t: what a call asks for itself (NCCL 2.31 and later).
struct CallConfig {
  static constexpr unsigned kMagic = 0xCAFEBEEF;
  static constexpr int kUnset = INT_MIN;

  std::size_t size;  ///< in the version that the program has
  unsigned magic;
  unsigned version;
  const void* extensions;  ///< of other vendors' libraries: NCCL ignores them
  int min_ctas;
  int max_ctas;
  int nvls_ctas;
  int cga_cluster_size;
  const char* algorithms;  ///< null or empty: any
  int forces_algorithms;
  int cta_policy;
  std::uint64_t profiler_tag;       ///< for profilers alone
  CUevent launch_completion_event;  ///< 2.32 and later; null: none
};

/// Whether a call with this configuration, which may be null, is for NCCL: it bounds resources,
/// names algorithms or an event, or is one that NCCL refuses. NCCL wants it alike on all ranks.
bool has_demands(const CallConfig* config) noexcept;

/// Whether in reproducible mode the program counts on polypath's sum here.
bool needs_rank_order(Operation operation, std::size_t count, int type, int reduction) noexcept;

// ---- statistics ---------------------------------------------------------------------------------

/// Any thread.
void count_call(Operation operation, DeclineReason reason, std::size_t bytes) noexcept;
/// A communicator was made; `refusal` as of Communicator.
void count_communicator(const std::string& refusal) noexcept;

/// With POLYPATH_STATS set: it is written when the process ends, "text" to stderr, else to the file
/// of that name with ".nccl" before its ending, as the shim names its own.
void report_at_exit() noexcept;

}  // namespace polypath::nccl

extern "C" {

/// What was counted until now, as JSON: {"library": its path, "version", "other_libraries": those
/// that were left alone, "reproducible": bool, "communicators": how many, "taken": how many of
/// them,
/// "refusals": {why: how many}, "calls": {function: {"calls", "bytes", "taken", "to_nccl": {reason:
/// count}}}}. Up to `size` bytes into `text`, with a zero at the end; gives how many it has without
/// that.
[[gnu::visibility("default")]] std::size_t polypath_nccl_report(char* text,
                                                                std::size_t size) noexcept;
}
