// How many CPUs this process may use.
#pragma once

#include <string>
#include <string_view>

namespace polypath {

/// CPUs of the affinity mask of the process, limited by the CPU quota of its control groups
/// (version 1 and 2), rounded up; at least 1. Reads files: not for a caller's path.
int usable_cpus() noexcept;

/// CPUs of a quota "max 100000" or "400000 100000" (cpu.max); 0: none, or unreadable text.
double parse_cpu_quota(std::string_view text) noexcept;

/// Ranks of this job on this machine, as the launcher says in the environment (torchrun, Open MPI,
/// MPICH, MVAPICH, Slurm); 1 where none says so.
int ranks_on_this_machine() noexcept;

}  // namespace polypath
