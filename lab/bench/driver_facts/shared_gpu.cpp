// What two processes on one GPU do to each other: one computes on GPU 0, the other carries legs
// through it, by copy engines or by the lane kernel of the emulated mesh.
//
// The other process is this program, started anew with kShareGpu (in sections.hpp). It reads the
// number of a way from its standard input, a line each, and answers on its standard output with a
// line: GB/s.
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/units.hpp"
#include "driver/context_guard.hpp"
#include "exec/emulated_mesh/emulated_links.hpp"
#include "exec/emulated_mesh/mesh_node.hpp"
#include "exec/kernels/images.hpp"
#include "kernel_images.hpp"
#include "sections.hpp"
#include "tune/group_timer.hpp"

extern char** environ;

namespace polypath::facts {
namespace {

constexpr const char* kSharedGpu = "shared_gpu";
constexpr std::uint64_t kWhole = 64 * kMiB;
constexpr std::uint64_t kChunk = 4 * kMiB;
constexpr std::size_t kSlots = 4;
constexpr int kRepetitions = 5;
constexpr int kLanes = 2;
constexpr double kLongUs = 5000;
constexpr double kShortUs = 100;
constexpr double kWindowUs = 300'000;  ///< that kernels are timed for without the other process
constexpr int kTimeoutMs = 20'000;     ///< for one answer of the other process
constexpr double kMaxBusyUs = 5e6;     ///< next to one way
constexpr std::array kWays = {"copies GPU 0 to GPU 1", "copies host to GPU 0 to GPU 1",
                              "lane kernels GPU 0 to GPU 1"};

// ---- the process that carries legs
// -----------------------------------------------------------------

class Legs {
 public:
  Legs(Workbench& bench, const Node& node)
      : bench_(bench),
        driver_(bench.driver()),
        src_(bench.buffer(MemoryId::gpu(0), kWhole)),
        host_(bench.buffer(bench.host_of(0), kWhole)),
        ring_(bench.buffer(MemoryId::gpu(0), kSlots * kChunk)),
        dst_(bench.buffer(MemoryId::gpu(1), kWhole)) {
    src_.fill(kSeed);
    host_.fill(kSeed);
    if (!link_copy_image().empty() && std::ranges::any_of(node.links, is_emulated)) {
      // The table lives as long as the workbench.
      links_.emplace(std::shared_ptr<const CudaDriver>(std::shared_ptr<void>(), &driver_), node);
      for (std::size_t link = 0; link < links_->links().size(); ++link)
        links_->set_lanes(link, kLanes, 0);
    }
    for (std::size_t slot = 0; slot < kSlots; ++slot) {
      written_.emplace_back(driver_, bench_.context(0), CU_EVENT_DISABLE_TIMING);
      read_.emplace_back(driver_, bench_.context(0), CU_EVENT_DISABLE_TIMING);
    }
  }

  /// The median; every byte verified. 0: this node cannot.
  double gbps(std::size_t way) {
    if (way == 2 && !links_) return 0;
    dst_.poison();
    std::vector<double> us;
    for (int i = 0; i < kRepetitions + 1; ++i) {
      const double start = bench_.now_us();
      for (std::uint64_t offset = 0; offset < kWhole; offset += kChunk) issue(way, offset);
      for (const CUstream stream : {in_, out_}) POLYPATH_CHECK(driver_, stream_synchronize(stream));
      if (i > 0) us.push_back(bench_.now_us() - start);  // the first one warms up
    }
    if (const auto at = dst_.first_difference(kSeed))
      throw Error(fmt::format("{}: wrong byte at offset {}", kWays[way], *at));
    return rate_gbps(kWhole, median(us));
  }

 private:
  void issue(std::size_t way, std::uint64_t offset) {
    const CUdeviceptr dst = dst_.address() + offset;
    const CUdeviceptr src = src_.address() + offset;
    if (way == 0) {
      bench_.copy(0, dst, src, kChunk, out_);
    } else if (way == 1) {
      issue_staged(dst, offset);
    } else {
      const CurrentContext current(driver_, bench_.context(0));
      LaneCopy copy = links_->link_copy(dst, src, kChunk, 0, 1, 0).value();
      const CUresult result = copy.launch(driver_, out_);
      if (result != CUDA_SUCCESS)
        throw_driver_error(driver_, result, "the launch of the lane kernel", __FILE__, __LINE__);
    }
  }

  void issue_staged(CUdeviceptr dst, std::uint64_t offset) {
    const std::size_t chunk = offset / kChunk;
    const std::size_t slot = chunk % kSlots;
    const CUdeviceptr staging = ring_.address() + slot * kChunk;
    if (chunk >= kSlots) POLYPATH_CHECK(driver_, stream_wait_event(in_, read_[slot].get(), 0));
    bench_.copy(0, staging, host_.address() + offset, kChunk, in_);
    POLYPATH_CHECK(driver_, event_record(written_[slot].get(), in_));
    POLYPATH_CHECK(driver_, stream_wait_event(out_, written_[slot].get(), 0));
    bench_.copy(0, dst, staging, kChunk, out_);
    POLYPATH_CHECK(driver_, event_record(read_[slot].get(), out_));
  }

  Workbench& bench_;
  const CudaDriver& driver_;
  TestBuffer src_, host_, ring_, dst_;
  CUstream in_ = bench_.stream(0, 1);
  CUstream out_ = bench_.stream(0, 2);
  std::optional<EmulatedLinks> links_;
  std::vector<Event> written_, read_;
};

/// The other process, as the one that computes sees it. Killed, if it has not ended, with this
/// object.
class Other {
 public:
  Other() {
    std::signal(SIGPIPE, SIG_IGN);  // should it have ended
    std::array<int, 2> to{-1, -1};
    std::array<int, 2> from{-1, -1};
    if (pipe(to.data()) != 0 || pipe(from.data()) != 0) throw Error("no pipe could be made");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, from[1], STDOUT_FILENO);
    for (const int end : {to[0], to[1], from[0], from[1]})
      posix_spawn_file_actions_addclose(&actions, end);
    std::string name = "driver_facts";
    std::string mode = kShareGpu;
    std::array<char*, 3> arguments{name.data(), mode.data(), nullptr};
    const int failed =
        posix_spawn(&process_, "/proc/self/exe", &actions, nullptr, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    close(to[0]);
    close(from[1]);
    to_ = to[1];
    from_ = from[0];
    if (failed != 0) {
      process_ = -1;
      close_pipes();
      throw Error("this program could not be started once more");
    }
  }
  ~Other() {
    close_pipes();  // it ends at the end of its input
    int status = 0;
    for (int i = 0; i < 100; ++i) {
      if (waitpid(process_, &status, WNOHANG) != 0) return;
      usleep(50'000);
    }
    kill(process_, SIGKILL);
    waitpid(process_, &status, 0);
  }
  Other(const Other&) = delete;
  Other& operator=(const Other&) = delete;

  void ask(std::size_t way) const {
    const std::string line = fmt::format("{}\n", way);
    if (write(to_, line.data(), line.size()) != static_cast<ssize_t>(line.size()))
      throw Error("the other process has ended");
  }
  [[nodiscard]] bool answers(int within_ms) const {
    pollfd poll_entry{from_, POLLIN, 0};
    return poll(&poll_entry, 1, within_ms) > 0;
  }
  /// Waits for it. Throws Error when it has ended, or says nothing.
  [[nodiscard]] double answer() const {
    std::string line;
    for (char next = 0;;) {
      if (!answers(kTimeoutMs)) throw Error("the other process does not answer");
      if (read(from_, &next, 1) != 1) throw Error("the other process failed");
      if (next == '\n') return std::stod(line);
      line += next;
    }
  }

 private:
  void close_pipes() {
    for (int* const end : {&to_, &from_})
      if (*end >= 0) close(std::exchange(*end, -1));
  }

  pid_t process_ = -1;
  int to_ = -1;
  int from_ = -1;
};

// ---- the process that computes
// ---------------------------------------------------------------------

/// Kernels on GPU 0, back to back, each on all of its multiprocessors.
class Busy {
 public:
  explicit Busy(Workbench& bench)
      : bench_(bench), driver_(bench.driver()), result_(bench.buffer(MemoryId::gpu(0), 256)) {
    const CurrentContext current(driver_, bench_.context(0));
    CUmodule module = nullptr;  // it stays loaded until the context ends
    POLYPATH_CHECK(driver_, module_load_data(&module, busy_image().data()));
    POLYPATH_CHECK(driver_, module_get_function(&function_, module, "busy"));
    POLYPATH_CHECK(driver_,
                   device_get_attribute(&processors_, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
  }

  /// Rounds for a kernel of that time, alone.
  unsigned int rounds_for(double us) {
    constexpr unsigned int kTrial = 100'000;
    time_us(kTrial, 2);  // warms up
    return static_cast<unsigned int>(kTrial * us / time_us(kTrial, 5));
  }

  /// The mean time of a kernel, until `ended`, but for kMaxBusyUs at most. Runs one batch at
  /// least.
  template <typename Ended>
  double run_us(unsigned int rounds, double kernel_us, Ended ended) {
    const int batch = std::max(1, static_cast<int>(20'000 / kernel_us));
    const double start = bench_.now_us();
    double sum = 0;
    int batches = 0;
    do {
      sum += time_us(rounds, batch);
      ++batches;
    } while (!ended() && bench_.now_us() - start < kMaxBusyUs);
    return sum / batches;
  }

  [[nodiscard]] double now_us() const { return bench_.now_us(); }

 private:
  /// The mean of `rounds` rounds, one after the other.
  double time_us(unsigned int rounds, int kernels) {
    const CurrentContext current(driver_, bench_.context(0));
    CUdeviceptr result = result_.address();
    std::array<void*, 2> arguments{&result, &rounds};
    const double start = bench_.now_us();
    for (int i = 0; i < kernels; ++i)
      POLYPATH_CHECK(
          driver_, launch_kernel(function_, 2 * static_cast<unsigned int>(processors_), 1, 1, 1024,
                                 1, 1, 0, stream_, arguments.data(), nullptr));
    POLYPATH_CHECK(driver_, stream_synchronize(stream_));
    return (bench_.now_us() - start) / kernels;
  }

  Workbench& bench_;
  const CudaDriver& driver_;
  TestBuffer result_;
  CUstream stream_ = bench_.stream(0, 0);
  CUfunction function_ = nullptr;
  int processors_ = 0;
};

}  // namespace

void shared_gpu(Workbench& bench, Report& report) {
  const auto skip = [&](const char* why) {
    report.skipped(kSharedGpu, "another process's legs on a GPU that computes", why);
  };
  if (bench.gpus() < 2) return skip("needs 2 GPUs");
  if (busy_image().empty()) return skip("this build has no kernels");
  if (bench.driver().launch_kernel == nullptr) return skip("the driver runs no kernels");
  if (bench.simulated()) return skip("a simulated node runs the kernels of polypath only");

  Busy busy(bench);
  const Other other;
  static_cast<void>(other.answer());  // it is ready
  std::vector<std::size_t> ways;
  for (std::size_t way = 0; way < kWays.size(); ++way) {
    other.ask(way);
    const double gbps = other.answer();
    if (gbps == 0) {
      report.skipped(kSharedGpu, kWays[way], "no lane kernel, or no NVLink between GPUs");
      continue;
    }
    report.figure(kSharedGpu, fmt::format("{}, GPU 0 idle", kWays[way]), gbps, "GB/s");
    ways.push_back(way);
  }
  for (const auto& [name, wanted_us] : {std::pair{"long", kLongUs}, {"short", kShortUs}}) {
    const unsigned int rounds = busy.rounds_for(wanted_us);
    const double end = busy.now_us() + kWindowUs;
    const double alone = busy.run_us(rounds, wanted_us, [&] { return busy.now_us() > end; });
    report.figure(kSharedGpu, fmt::format("{} kernels of GPU 0, alone", name), alone, "us each");
    for (const std::size_t way : ways) {
      other.ask(way);
      const double beside = busy.run_us(rounds, alone, [&] { return other.answers(0); });
      const double gbps = other.answer();
      report.figure(kSharedGpu, fmt::format("{}, beside {} kernels", kWays[way], name), gbps,
                    "GB/s");
      report.figure(kSharedGpu, fmt::format("{} kernels beside {}", name, kWays[way]), beside,
                    "us each");
    }
  }
}

void share_gpu(NodeSource source) {
  const Node node = source.node;
  Workbench bench(std::move(source));
  Legs legs(bench, node);
  fmt::print("1\n");
  std::fflush(stdout);
  for (std::size_t way = 0; std::cin >> way;) {
    fmt::print("{}\n", legs.gbps(way));
    std::fflush(stdout);
  }
}

}  // namespace polypath::facts
