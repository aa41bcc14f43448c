// What the registry adds to a transfer: looking at what others have in flight, ending the pair's
// last flight and starting the next. Alone, and next to other processes; medians of the CPU time of
// one transfer, in a folder of its own.
//
//   build/release/bin/registry_cost
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <vector>

#include "registry/registry.hpp"

namespace {

constexpr int kTransfers = 10'000;
constexpr int kRounds = 21;

/// Nanoseconds of one transfer, the median of rounds.
double time_of_transfer(polypath::Registry& registry) {
  std::vector<polypath::InFlightTransfer> flights;
  polypath::FlightToken token;
  std::array<double, kRounds> times{};
  for (double& time : times) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kTransfers; ++i) {
      registry.others(flights);
      registry.end(token);
      polypath::InFlightTransfer flight;
      flight.bytes = 1 << 26;
      flight.until_ns = registry.now_ns() + 250'000;
      token = registry.start(flight);
    }
    const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - begin;
    time = spent.count() / kTransfers;
  }
  registry.end(token);
  std::ranges::nth_element(times, times.begin() + kRounds / 2);
  return times[kRounds / 2];
}

/// A process that is there, and does nothing, until it is killed.
pid_t start_other(const std::string& folder) {
  int ready[2] = {};
  if (pipe(ready) != 0) return -1;
  const pid_t pid = fork();
  if (pid == 0) {
    polypath::Registry registry(folder);
    const bool is_there = registry.why_unusable().empty();
    if (write(ready[1], &is_there, 1) != 1) _exit(1);
    for (;;) pause();
  }
  char there = 0;
  const bool is_read = read(ready[0], &there, 1) == 1;
  close(ready[0]);
  close(ready[1]);
  return is_read ? pid : -1;
}

}  // namespace

int main() {
  const std::string folder = fmt::format("/dev/shm/polypath-cost-{}", getpid());
  std::vector<pid_t> others;
  {
    polypath::Registry registry(folder);
    for (const std::size_t count : {0U, 1U, 3U, 7U}) {
      while (others.size() < count) others.push_back(start_other(folder));
      usleep(100'000);  // it has noticed them by then
      fmt::print("{} other processes:{:>9.1f} ns a transfer\n", count, time_of_transfer(registry));
    }
    for (const pid_t pid : others) {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
    usleep(100'000);
    std::vector<polypath::InFlightTransfer> flights;
    registry.others(flights);  // removes what they have left
  }
  return 0;
}
