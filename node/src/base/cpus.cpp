#include "base/cpus.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>

namespace polypath {
namespace {

std::string text_of(const std::string& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

double number_at(std::string_view& text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{}) return 0;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

void limit(double& cpus, double quota) {
  if (quota > 0) cpus = std::min(cpus, quota);
}

/// The quotas of the group and of all groups around it. Within a container /proc/self/cgroup may
/// name a folder that is not mounted there: the root's own files then hold the quota.
double group_quota(double cpus) {
  std::istringstream lines(text_of("/proc/self/cgroup"));
  for (std::string line; std::getline(lines, line);) {
    const auto first = line.find(':');
    const auto second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool is_unified = controllers.empty();
    if (!is_unified && controllers.find("cpu") == std::string::npos) continue;
    std::string path = line.substr(second + 1);
    for (;;) {
      if (path == "/") path.clear();
      if (is_unified) {
        limit(cpus, parse_cpu_quota(text_of("/sys/fs/cgroup" + path + "/cpu.max")));
      } else {
        const std::string folder = "/sys/fs/cgroup/cpu" + path;
        limit(cpus, parse_cpu_quota(text_of(folder + "/cpu.cfs_quota_us") + " " +
                                    text_of(folder + "/cpu.cfs_period_us")));
      }
      const auto slash = path.rfind('/');
      if (slash == std::string::npos) break;
      path.resize(slash);
    }
  }
  return cpus;
}

}  // namespace

double parse_cpu_quota(std::string_view text) noexcept {
  std::string spaced(text);
  std::ranges::replace(spaced, '\n', ' ');
  std::string_view rest = spaced;
  const double quota = number_at(rest);
  const double period = number_at(rest);
  return quota > 0 && period > 0 ? quota / period : 0;
}

int usable_cpus() noexcept {
  double cpus = 1;
  try {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    // Fails where the machine has more CPUs than the mask.
    cpus = sched_getaffinity(0, sizeof allowed, &allowed) == 0
               ? CPU_COUNT(&allowed)
               : static_cast<double>(sysconf(_SC_NPROCESSORS_ONLN));
    cpus = group_quota(cpus);
  } catch (const std::exception&) {
    // No memory: as far as it is known.
  }
  return std::max(1, static_cast<int>(std::ceil(cpus)));
}

int ranks_on_this_machine() noexcept {
  constexpr std::array kNames{"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS",
                              "MV2_COMM_WORLD_LOCAL_SIZE", "SLURM_NTASKS_PER_NODE"};
  for (const char* const name : kNames) {
    const char* const value = std::getenv(name);
    if (value == nullptr) continue;
    const int ranks = std::atoi(value);
    if (ranks > 0) return ranks;
  }
  return 1;
}

}  // namespace polypath
