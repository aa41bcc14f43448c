// What kernels store to other GPUs at most, next to what copy engines carry: all GPUs at once, each
// to all others, by the number of blocks and by where rows begin in the memory of the others.
#include "peer_stores.hpp"

#include <array>
#include <memory>
#include <vector>

#include "base/units.hpp"
#include "driver/context_guard.hpp"
#include "kernel_images.hpp"
#include "sections.hpp"

namespace polypath::facts {
namespace {

constexpr const char* kPeerStores = "peer_stores";
constexpr std::uint64_t kWord = 16;

class PeerStores {
 public:
  explicit PeerStores(Workbench& bench)
      : bench_(bench), driver_(bench.driver()), gpus_(bench.gpus()) {
    const auto peers = static_cast<std::uint64_t>(gpus_ - 1);
    bytes_ = bench.bytes() / peers / (4 * kKiB) * (4 * kKiB);
    for (int gpu = 0; gpu < gpus_; ++gpu) {
      streams_.push_back(bench.stream(gpu, 0));
      sources_.push_back(buffer_of(gpu));
      sources_.back()->fill(seed_of(gpu));
      for (int other = 0; other < gpus_; ++other)
        targets_.push_back(other == gpu ? nullptr : buffer_of(other));
      load(gpu);
    }
  }

  /// GB/s out of each GPU.
  double by_kernels(unsigned int blocks, std::uint64_t shift) {
    return rate([&] {
      for (int gpu = 0; gpu < gpus_; ++gpu) launch(gpu, blocks, shift / kWord);
    });
  }
  double by_copies() {
    return rate([&] {
      for (int step = 1; step < gpus_; ++step)
        for (int gpu = 0; gpu < gpus_; ++gpu)
          bench_.copy(gpu, target(gpu, (gpu + step) % gpus_).address(),
                      sources_[static_cast<std::size_t>(gpu)]->address(), bytes_,
                      streams_[static_cast<std::size_t>(gpu)]);
    });
  }

 private:
  static std::uint64_t seed_of(int gpu) { return kSeed + static_cast<std::uint64_t>(gpu); }
  [[nodiscard]] std::unique_ptr<TestBuffer> buffer_of(int gpu) const {
    return std::unique_ptr<TestBuffer>(new TestBuffer(bench_.buffer(MemoryId::gpu(gpu), bytes_)));
  }
  [[nodiscard]] TestBuffer& target(int from, int to) const {
    return *targets_[static_cast<std::size_t>(from * gpus_ + to)];
  }

  void load(int gpu) {
    const CurrentContext current(driver_, bench_.context(gpu));
    for (int other = 0; other < gpus_; ++other) {
      if (other == gpu) continue;
      const CUresult result = driver_.ctx_enable_peer_access(bench_.context(other), 0);
      if (result != CUDA_SUCCESS && result != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
        throw NotSupported(fmt::format("GPU {} cannot address GPU {}", gpu, other));
    }
    CUmodule module = nullptr;  // it stays loaded until the context ends
    POLYPATH_CHECK(driver_, module_load_data(&module, peer_stores_image().data()));
    POLYPATH_CHECK(driver_, module_get_function(&functions_.emplace_back(), module, kPeerStores));
  }

  void launch(int gpu, unsigned int blocks, std::uint64_t shift) {
    const CurrentContext current(driver_, bench_.context(gpu));
    const auto number = static_cast<std::size_t>(gpu);
    StoresArgs args{};
    const auto pointer = [](CUdeviceptr address) { return reinterpret_cast<void*>(address); };
    args.from = pointer(sources_[number]->address());
    args.peers = static_cast<unsigned int>(gpus_ - 1);
    args.shift = static_cast<unsigned int>(shift);
    args.words = bytes_ / kWord;
    for (int step = 1; step < gpus_; ++step)
      args.to[step - 1] = pointer(target(gpu, (gpu + step) % gpus_).address());
    std::array<void*, 1> arguments{&args};
    POLYPATH_CHECK(driver_, launch_kernel(functions_[number], blocks, 1, 1, kStoringThreads, 1, 1,
                                          0, streams_[number], arguments.data(), nullptr));
  }

  double rate(const std::function<void()>& issue) {
    for (const auto& buffer : targets_)
      if (buffer) buffer->poison();
    const double us = bench_.time(streams_, issue).device_us;
    for (int gpu = 0; gpu < gpus_; ++gpu)
      for (int other = 0; other < gpus_; ++other)
        if (other != gpu && target(gpu, other).first_difference(seed_of(gpu)))
          throw Error(fmt::format("wrong bytes from GPU {} to GPU {}", gpu, other));
    return rate_gbps(bytes_ * static_cast<std::uint64_t>(gpus_ - 1), us);
  }

  Workbench& bench_;
  const CudaDriver& driver_;
  int gpus_;
  std::uint64_t bytes_ = 0;  ///< from each GPU to each other
  std::vector<CUstream> streams_;
  std::vector<std::unique_ptr<TestBuffer>> sources_;
  std::vector<std::unique_ptr<TestBuffer>> targets_;  ///< by source and destination
  std::vector<CUfunction> functions_;
};

}  // namespace

void peer_stores(Workbench& bench, Report& report) {
  const auto skip = [&](const char* why) {
    report.skipped(kPeerStores, "stores to other GPUs", why);
  };
  if (bench.gpus() < 2 || bench.gpus() > static_cast<int>(kMaxPeers) + 1)
    return skip("needs 2 GPUs");
  if (peer_stores_image().empty()) return skip("this build has no kernels");
  if (bench.driver().launch_kernel == nullptr) return skip("the driver runs no kernels");
  if (bench.simulated()) return skip("a simulated node runs the kernels of polypath only");

  PeerStores stores(bench);
  report.figure(kPeerStores, "copy engines", stores.by_copies(), "GB/s");
  for (const unsigned int blocks : {16U, 32U, 64U, 112U, 132U})
    report.figure(kPeerStores, fmt::format("{} blocks", blocks), stores.by_kernels(blocks, 0),
                  "GB/s");
  for (const std::uint64_t shift : {16U, 32U, 64U, 128U, 256U})
    report.figure(kPeerStores, fmt::format("112 blocks, rows {} bytes before 4 KiB", shift),
                  stores.by_kernels(112, shift), "GB/s");
}

}  // namespace polypath::facts
