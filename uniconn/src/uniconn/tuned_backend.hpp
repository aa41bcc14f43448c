// The UNICONN backend that was measured to be the fastest, for an operation, a set of GPUs and a
// size: as the profile keeps it. AnyBackend follows it
// (polypath/uniconn/backend/routing_table.hpp).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace polypath {

struct BackendTime {
  std::string backend;
  double us = 0;  ///< of the slowest rank; median, in hundredths

  friend bool operator==(const BackendTime&, const BackendTime&) = default;
};

/// Operations and backends that this library does not know are kept, and not followed.
struct TunedBackend {
  std::string op = {};       ///< "post", "allreduce", ...
  std::string ranks = {};    ///< collective_class()
  std::uint64_t bytes = 0;   ///< of a message; of a collective, of a rank's larger buffer
  std::string backend = {};  ///< the choice
  std::vector<BackendTime> times = {};  ///< in the order of preference
  int pairs = 0;                        ///< times that each was measured, in turns
  bool edited = false;                  ///< changed by hand in the profile: no search replaces it

  friend bool operator==(const TunedBackend&, const TunedBackend&) = default;
};

/// Chooses by what was measured in turns, `us[turn * backends.size() + i]` by backend i: the first,
/// unless another one was faster in 8 of 9 turns and by 1 % at the median; of those the fastest.
/// Fills backend, times and pairs. Throws InvalidArgument for no backends or no turn.
void choose_backend(TunedBackend& entry, const std::vector<std::string>& backends,
                    std::span<const double> us);

/// A number of what is followed and what was measured. A profile tells edited entries by it.
std::uint32_t digest(const TunedBackend& entry) noexcept;

}  // namespace polypath
