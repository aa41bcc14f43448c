// Which driver calls wait for kernels: those that a thread makes to take memory (adr/0052) while
// kernels of all GPUs run, and while another GPU's stream takes no more launches.
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/units.hpp"
#include "driver/context_guard.hpp"
#include "kernel_images.hpp"
#include "sections.hpp"

namespace polypath::facts {
namespace {

constexpr const char* kCallsBesideKernels = "calls_beside_kernels";
constexpr std::uint64_t kTaken = 64 * kMiB;
constexpr double kBusyUs = 200'000;  ///< far longer than any of the calls by itself
constexpr int kMaxLaunches = 4096;   ///< more than a stream takes
constexpr double kLaunchedUs = 1000;
constexpr unsigned int kThreads = 512;

/// Kernels of one GPU, on a stream of their own.
class BusyGpu {
 public:
  BusyGpu(Workbench& bench, int gpu)
      : bench_(bench),
        driver_(bench.driver()),
        gpu_(gpu),
        result_(bench.buffer(MemoryId::gpu(gpu), 256)),
        stream_(bench.stream(gpu, 0)) {
    const CurrentContext current(driver_, bench_.context(gpu_));
    CUmodule module = nullptr;  // it stays loaded until the context ends
    POLYPATH_CHECK(driver_, module_load_data(&module, busy_image().data()));
    POLYPATH_CHECK(driver_, module_get_function(&function_, module, "busy"));
    int processors = 0;
    POLYPATH_CHECK(
        driver_, device_get_attribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, gpu_));
    all_blocks_ = 4 * static_cast<unsigned int>(processors);  // each has up to 2048 threads
    launch(1, 1, stream_);                                    // warms up
    POLYPATH_CHECK(driver_, stream_synchronize(stream_));
  }

  [[nodiscard]] unsigned int all_blocks() const noexcept { return all_blocks_; }
  [[nodiscard]] CUstream stream() const noexcept { return stream_; }
  [[nodiscard]] bool runs() const { return driver_.stream_query(stream_) == CUDA_ERROR_NOT_READY; }

  /// The context of the GPU is current.
  void launch(unsigned int blocks, unsigned int rounds, CUstream stream) {
    CUdeviceptr result = result_.address();
    std::array<void*, 2> arguments{&result, &rounds};
    POLYPATH_CHECK(driver_, launch_kernel(function_, blocks, 1, 1, kThreads, 1, 1, 0, stream,
                                          arguments.data(), nullptr));
  }
  /// Rounds for a kernel of that time, alone.
  unsigned int rounds_for(double us) {
    constexpr unsigned int kTrial = 1'000'000;
    const CurrentContext current(driver_, bench_.context(gpu_));
    const double start = bench_.now_us();
    launch(all_blocks_, kTrial, stream_);
    POLYPATH_CHECK(driver_, stream_synchronize(stream_));
    return static_cast<unsigned int>(kTrial * us / (bench_.now_us() - start));
  }

 private:
  Workbench& bench_;
  const CudaDriver& driver_;
  int gpu_;
  TestBuffer result_;
  CUstream stream_;
  CUfunction function_ = nullptr;
  unsigned int all_blocks_ = 0;
};

struct TimedCall {
  const char* name;
  std::function<void()> make;
};

/// Memory of GPU 0, and what its calls need. The context of the GPU is current.
class Calls {
 public:
  Calls(Workbench& bench, BusyGpu& gpu)
      : driver_(bench.driver()), gpu_(gpu), stream_(bench.stream(0, 1)) {
    POLYPATH_CHECK(driver_, mem_alloc(&filled_, kTaken));
    for (const TimedCall& call : calls()) call.make();  // warms up
    release();
  }
  ~Calls() {
    release();
    POLYPATH_WARN(driver_, mem_free(filled_));
  }
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;

  std::vector<TimedCall> calls() {
    return {{"launch of a block", [this] { gpu_.launch(1, 1, stream_); }},
            {"cuMemAlloc", [this] { take(); }},
            {"cuMemsetD8Async and cuStreamSynchronize", [this] { fill(); }},
            {"cuIpcGetMemHandle", [this] { export_memory(); }}};
  }
  /// No kernel runs.
  void release() noexcept {
    for (const CUdeviceptr address : taken_) POLYPATH_WARN(driver_, mem_free(address));
    taken_.clear();
  }

 private:
  void take() {
    CUdeviceptr address = 0;
    POLYPATH_CHECK(driver_, mem_alloc(&address, kTaken));
    taken_.push_back(address);
  }
  void fill() const {
    POLYPATH_CHECK(driver_, memset_d8_async(filled_, 0, kTaken, stream_));
    POLYPATH_CHECK(driver_, stream_synchronize(stream_));
  }
  void export_memory() const {
    CUipcMemHandle handle{};
    POLYPATH_CHECK(driver_, ipc_get_mem_handle(&handle, filled_));
  }

  const CudaDriver& driver_;
  BusyGpu& gpu_;
  CUstream stream_;
  CUdeviceptr filled_ = 0;
  std::vector<CUdeviceptr> taken_;
};

using BusyGpus = std::vector<std::unique_ptr<BusyGpu>>;

void show_beside_kernels(Workbench& bench, BusyGpus& gpus, Report& report) {
  const CudaDriver& driver = bench.driver();
  const CurrentContext current(driver, bench.context(0));
  Calls calls(bench, *gpus[0]);
  const unsigned int rounds = gpus[0]->rounds_for(kBusyUs);
  for (const unsigned int blocks : {112U, gpus[0]->all_blocks()})
    for (const TimedCall& call : calls.calls()) {
      for (std::size_t gpu = 0; gpu < gpus.size(); ++gpu) {
        const CurrentContext other(driver, bench.context(static_cast<int>(gpu)));
        gpus[gpu]->launch(blocks, rounds, gpus[gpu]->stream());
      }
      const double start = bench.now_us();
      call.make();
      const double us = bench.now_us() - start;
      const bool returned = gpus[0]->runs();
      for (const auto& gpu : gpus) POLYPATH_CHECK(driver, stream_synchronize(gpu->stream()));
      calls.release();
      const std::string name = fmt::format("{}, {} blocks run on each GPU", call.name, blocks);
      report.figure(kCallsBesideKernels, name, us, "us");
      report.figure(kCallsBesideKernels, name + ": returned first", returned ? 1 : 0, "");
    }
}

/// A thread launches on the last GPU until the driver lets it wait.
void show_beside_full_stream(Workbench& bench, BusyGpus& gpus, Report& report) {
  const CudaDriver& driver = bench.driver();
  const CurrentContext current(driver, bench.context(0));
  Calls calls(bench, *gpus[0]);
  BusyGpu& full = *gpus.back();
  const unsigned int rounds = full.rounds_for(kLaunchedUs);
  for (const TimedCall& call : calls.calls()) {
    std::atomic<int> launched{0};
    std::jthread thread([&] {
      const CurrentContext other(driver, bench.context(bench.gpus() - 1));
      for (; launched < kMaxLaunches; ++launched)
        full.launch(full.all_blocks(), rounds, full.stream());
    });
    const auto is_full = [&] {  // no faster than kernels end
      const int before = launched;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      return launched - before < 40 || launched >= kMaxLaunches;
    };
    while (launched == 0 || !is_full()) {
    }
    const double start = bench.now_us();
    call.make();
    const double us = bench.now_us() - start;
    const bool was_full = launched < kMaxLaunches;
    thread.join();
    POLYPATH_CHECK(driver, stream_synchronize(full.stream()));
    calls.release();
    const std::string name = fmt::format("{}, another GPU's stream is full", call.name);
    report.figure(kCallsBesideKernels, name, us, "us");
    report.figure(kCallsBesideKernels, name + ": returned first", was_full ? 1 : 0, "");
  }
}

}  // namespace

void calls_beside_kernels(Workbench& bench, Report& report) {
  const auto skip = [&](const char* why) {
    report.skipped(kCallsBesideKernels, "calls while kernels run", why);
  };
  if (bench.gpus() < 2) return skip("needs 2 GPUs");
  if (busy_image().empty()) return skip("this build has no kernels");
  if (bench.driver().launch_kernel == nullptr) return skip("the driver runs no kernels");
  if (bench.simulated()) return skip("a simulated node runs the kernels of polypath only");

  BusyGpus gpus;
  for (int gpu = 0; gpu < bench.gpus(); ++gpu)
    gpus.push_back(std::make_unique<BusyGpu>(bench, gpu));
  show_beside_kernels(bench, gpus, report);
  show_beside_full_stream(bench, gpus, report);
}

}  // namespace polypath::facts
