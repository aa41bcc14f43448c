// How long kernels of a communicator wait, and what one that times out tells the host. C++17:
// shared by host and device; polypath_comm_wait_context() of comm.h gives it.
#pragma once

#include <cstdint>

namespace polypath::device {

/// In pinned host memory that the kernel can write. `given_up` is written last, after a fence of
/// system scope, by the first block that times out; the host reads the rest once it is not 0.
struct wait_error {
  static constexpr std::uint32_t kNobody = 0xFFFFFFFF;
  /// The `kernel` of a stream's wait; its launches have no numbers.
  static constexpr std::uint32_t kStreamWait = 0;
  /// ... and of a kernel of the program.
  static constexpr std::uint32_t kProgram = 0xFFFFFFFF;
  enum Reason : std::uint32_t {
    none = 0,
    time_limit = 1,   ///< a rank's data or signal did not come in time
    aborted = 2,      ///< the abort word was set: the reason is known elsewhere
    bad_state = 3,    ///< what was found cannot be: a defect
    bad_memory = 4,   ///< of a program's call: no symmetric memory of that size at an address
    bad_rank = 5,     ///< of a program's call: there is no such rank
    mismatch = 6,     ///< of a collective: that rank's call is another one (call_meeting.cuh)
    node_aborted = 7  ///< of a collective across nodes: that node aborted its part
  };

  std::uint32_t given_up;         ///< 0: no wait timed out
  std::uint32_t kernel;           ///< as its launcher numbers them, from 1; or one of the above
  std::uint32_t reason;           ///< Reason
  std::uint32_t waited_for_rank;  ///< kNobody: for none
  std::uint32_t block;
  std::uint32_t reserved;
  std::uint64_t expected;  ///< what was waited for, or is wrong with the call,
  std::uint64_t seen;      ///< and what was there last
  std::uint64_t offset;    ///< of a signal, in its symmetric memory; of a queue, its number
  std::uint64_t bytes;     ///< of that memory; 0: it was no signal
};

/// How long a kernel waits, and where it says why no longer. Addresses are as its GPU has them.
struct wait_context {
  const std::uint32_t* abort_flag;  ///< in pinned host memory; not 0: all waits end
  std::uint64_t time_limit_ns;      ///< of one wait
  wait_error* status;
  /// In the GPU's own memory: how many blocks of the communicator timed out. The first says why.
  std::uint32_t* reports;
  std::uint32_t kernel;  ///< number of this launch in the status record
  /// In GPU memory, initially 0: time of the next check of the abort flag, in ns.
  /// Where thousands wait at once, one of them looks, and tells the others by a report. Null: each
  /// looks.
  std::uint64_t* next_abort_poll_ns = nullptr;
};

}  // namespace polypath::device
