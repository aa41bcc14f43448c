// What the shim adds to calls that it leaves to the driver. The program runs itself in turn without it, with it
// (its argument), and with it and statistics, and prints the medians of the CPU time of one call.
//
//   build/release/bin/shim_cost build/release/libpolypath_preload.so
#include <cuda.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

namespace {

constexpr int kCalls = 20'000;
constexpr int kRounds = 21;
constexpr std::size_t kBytes = 4096;

/// Nanoseconds of one call, the median of rounds.
template <typename Call>
double time_of(Call&& call) {
  std::array<double, kRounds> times{};
  for (double& time : times) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; ++i) call();
    const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - begin;
    time = spent.count() / kCalls;
  }
  std::ranges::nth_element(times, times.begin() + kRounds / 2);
  return times[kRounds / 2];
}

void print_times(const char* way) {
  fmt::print("{:<28}{:>8.1f} ns cuMemcpyDtoDAsync{:>8.1f} ns cuMemcpyHtoD\n", way,
             time_of([] { cuMemcpyDtoDAsync(0, 0, kBytes, nullptr); }),
             time_of([] { cuMemcpyHtoD(0, nullptr, kBytes); }));
}

/// Runs this program again, for one line.
bool run(const char* program, const char* way,
         const std::map<std::string, std::string>& environment) {
  const pid_t pid = fork();
  if (pid == 0) {
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    execl(program, program, "--print", way, nullptr);
    _exit(127);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string first = argc > 1 ? argv[1] : "";
  if (argc == 3 && first == "--print") {
    print_times(argv[2]);
    return 0;
  }
  if (argc != 2) {
    fmt::print(stderr, "usage: {} LIBPOLYPATH_PRELOAD\n", argv[0]);
    return 2;
  }
  for (int turn = 0; turn < 3; ++turn) {
    const std::map<std::string, std::string> shim{{"LD_PRELOAD", first}};
    auto counted = shim;
    counted["POLYPATH_STATS"] = "/dev/null/%p";
    if (!run(argv[0], "without the shim", {}) || !run(argv[0], "with it", shim) ||
        !run(argv[0], "with it and statistics", counted))
      return 1;
  }
  return 0;
}
