// How the simulated devices run, as the environment says.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace polypath::sim {

struct Mode {
  enum class Compute { standard, exclusive_process, prohibited };

  /// POLYPATH_SIM_MODE: `virtual` (time, in one process; the default) or `functional` (worker
  /// threads in real time, memory that other processes can open).
  bool is_functional = false;
  /// POLYPATH_SIM_SEED, for the functional mode: delays operations at random; 0, the default: does
  /// not.
  std::uint64_t seed = 0;
  /// POLYPATH_SIM_BLOCKS, with a seed: `whole`, the default: all threads of each block run;
  /// `folded`: as few as the kernel's host build can do with, as in virtual time.
  bool folds_blocks = false;
  /// POLYPATH_SIM_LINES: `torn`, the default: what a warp stores of 128 bytes in one instruction
  /// comes in parts of 16 bytes, of which the last may come first; `whole`: it arrives at once, and
  /// is loaded so, as on GPUs that were tried for it.
  bool has_whole_lines = false;
  /// POLYPATH_SIM_ADDRESSES: `unique`, the default: no address is given out twice; `reused`: memory
  /// that is freed leaves its address to the next allocation of its size.
  bool reuses_addresses = false;
  /// POLYPATH_SIM_TIMEOUT, seconds: a call that is blocked for this time on a full stream ends the
  /// process.
  std::chrono::seconds timeout{120};
  /// POLYPATH_SIM_CALL_TIMES, for the functional mode: `none`, the default, or `real`: calls that
  /// take long (Devices::take_long) do so, and other threads' calls go on meanwhile. In virtual
  /// time they always do.
  bool has_call_times = false;
  /// POLYPATH_SIM_ENGINES, for the functional mode: `fair`, the default: copies over one host link
  /// run in the order in which they are ready; `greedy`: its engine serves a stream as long as that
  /// has work which can run.
  bool has_greedy_engines = false;
  /// POLYPATH_SIM_COMPUTE_MODE, of all GPUs: `default`, `exclusive_process` (one process at a time
  /// has contexts on a GPU) or `prohibited` (none has).
  Compute compute = Compute::standard;
  /// POLYPATH_SIM_MACHINE: processes that name the same machine, of one user, exclude each other.
  std::string machine;
  /// POLYPATH_SIM_MEMORY, bytes: what is free of each GPU's memory at first; the rest counts as
  /// taken by other programs.
  std::uint64_t free_bytes = UINT64_MAX;
};

/// Throws polypath::Error, which names the variable, for a value that is none.
Mode read_mode();

}  // namespace polypath::sim
