// What the shim adds to calls that it leaves to the driver. The program runs itself in turn without
// it, with it (its argument), with it but without the load of links, and with it and statistics,
// and prints the medians of the CPU time of one call. The first two copy nothing; the others, of 64
// KiB, need two GPUs.
//
//   build/release/bin/shim_cost build/release/libpolypath_preload.so
#include <cuda.h>
#include <dlfcn.h>
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
constexpr std::size_t kCopiedBytes = 65536;
/// A stream holds about a thousand copies; the next call waits.
constexpr int kQueued = 500;

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

/// As above, for copies that are queued: the stream is empty before each round.
template <typename Empty, typename Call>
double time_of_queued(Empty&& empty, Call&& call) {
  std::array<double, kRounds> times{};
  for (double& time : times) {
    empty();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kQueued; ++i) call();
    const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - begin;
    time = spent.count() / kQueued;
  }
  empty();
  std::ranges::nth_element(times, times.begin() + kRounds / 2);
  return times[kRounds / 2];
}

/// A function of the driver, or of the shim in front of it; null in the idle driver.
template <typename Function>
Function* find(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

/// Prints the times of copies between two GPUs, and from pinned memory.
void print_times_of_copies() {
  auto* const count = find<CUresult(int*)>("cuDeviceGetCount");
  auto* const retain = find<CUresult(CUcontext*, CUdevice)>("cuDevicePrimaryCtxRetain");
  auto* const set_current = find<CUresult(CUcontext)>("cuCtxSetCurrent");
  auto* const reach = find<CUresult(CUcontext, unsigned)>("cuCtxEnablePeerAccess");
  auto* const allocate = find<CUresult(CUdeviceptr*, std::size_t)>("cuMemAlloc_v2");
  auto* const pin = find<CUresult(void**, std::size_t)>("cuMemAllocHost_v2");
  auto* const create = find<CUresult(CUstream*, unsigned)>("cuStreamCreate");
  auto* const wait = find<CUresult(CUstream)>("cuStreamSynchronize");
  auto* const from_host =
      find<CUresult(CUdeviceptr, const void*, std::size_t, CUstream)>("cuMemcpyHtoDAsync_v2");
  auto* const init = find<CUresult(unsigned)>("cuInit");
  if (init == nullptr || count == nullptr || from_host == nullptr) return;
  int gpus = 0;
  if (init(0) != CUDA_SUCCESS || count(&gpus) != CUDA_SUCCESS || gpus < 2) return;
  std::array<CUcontext, 2> contexts{};
  std::array<CUdeviceptr, 2> memory{};
  for (const int gpu : {1, 0}) {
    const auto at = static_cast<std::size_t>(gpu);
    retain(&contexts[at], gpu);
    set_current(contexts[at]);
    if (allocate(&memory[at], kCopiedBytes) != CUDA_SUCCESS) return;
  }
  reach(contexts[1], 0);
  void* host = nullptr;
  CUstream stream = nullptr;
  if (pin(&host, kCopiedBytes) != CUDA_SUCCESS ||
      create(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
    return;
  const auto empty = [&] { wait(stream); };
  const double between =
      time_of_queued(empty, [&] { cuMemcpyDtoDAsync(memory[1], memory[0], kCopiedBytes, stream); });
  const double down =
      time_of_queued(empty, [&] { from_host(memory[0], host, kCopiedBytes, stream); });
  fmt::print("{:<28}{:>8.1f} ns from GPU to GPU  {:>8.1f} ns from pinned memory\n", "", between,
             down);
}

void print_times(const char* way) {
  fmt::print("{:<28}{:>8.1f} ns cuMemcpyDtoDAsync{:>8.1f} ns cuMemcpyHtoD\n", way,
             time_of([] { cuMemcpyDtoDAsync(0, 0, kBytes, nullptr); }),
             time_of([] { cuMemcpyHtoD(0, nullptr, kBytes); }));
  print_times_of_copies();
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
    counted["POLYPATH_STATS"] = "/dev/null";
    auto no_load = shim;
    no_load["POLYPATH_LOAD"] = "off";
    if (!run(argv[0], "without the shim", {}) || !run(argv[0], "with it, load off", no_load) ||
        !run(argv[0], "with it", shim) || !run(argv[0], "with it and statistics", counted))
      return 1;
  }
  return 0;
}
