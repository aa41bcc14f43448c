// How the simulated devices run, as the environment says.
#pragma once

#include <chrono>
#include <cstdint>

namespace polypath::sim {

struct Mode {
  /// POLYPATH_SIM_MODE: `virtual` (time, in one process; the default) or `functional` (worker threads in
  /// real time, memory that other processes can open).
  bool is_functional = false;
  /// POLYPATH_SIM_SEED, for the functional mode: delays operations at random; 0, the default: does not.
  std::uint64_t seed = 0;
  /// POLYPATH_SIM_ADDRESSES: `unique`, the default: no address is given out twice; `reused`: memory that is
  /// freed leaves its address to the next allocation of its size.
  bool reuses_addresses = false;
  /// POLYPATH_SIM_PATIENCE, seconds: a call that has been blocked so long on a full stream ends the
  /// process.
  std::chrono::seconds patience{120};
};

/// Throws polypath::Error, which names the variable, for a value that is none.
Mode read_mode();

}  // namespace polypath::sim
