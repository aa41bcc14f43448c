// MPI_Allreduce of floats on GPU memory, in alternation with what a program does for an MPI that
// takes no GPU memory: it copies to pinned host memory, reduces there, and copies back.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "support/arguments.hpp"
#include "support/cuda.hpp"
#include "support/memory.hpp"
#include "support/sizes.hpp"
#include "support/usage_error.hpp"
#include "support/world.hpp"

namespace mpi_bench {
namespace {

using Clock = std::chrono::steady_clock;

struct Settings {
  std::vector<std::size_t> sizes{std::size_t{64} << 20};
  int iterations = 20;
  int warmup = 3;
  bool device = true;
  bool by_hand = true;
  std::string json;
};

/// Pinned host memory.
class Pinned {
 public:
  explicit Pinned(std::size_t bytes) {
    const Cuda& cuda = Cuda::get();
    cuda.check(cuda.mem_host_alloc(&data_, bytes, 0), "cuMemHostAlloc");
  }
  ~Pinned() { Cuda::get().mem_free_host(data_); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  [[nodiscard]] void* data() const noexcept { return data_; }

 private:
  void* data_ = nullptr;
};

/// Whole numbers: their sums are exact in every order.
float element(std::size_t index, int rank) {
  return static_cast<float>((index * 31 + static_cast<std::size_t>(rank) * 17) % 1009);
}

/// One size: buffers, both ways, and the proof.
class Test {
 public:
  Test(const World& world, std::size_t bytes)
      : world_(world),
        count_(bytes / sizeof(float)),
        send_(MemoryKind::gpu, bytes),
        recv_(MemoryKind::gpu, bytes),
        host_send_(bytes),
        host_recv_(bytes) {
    std::vector<float> values(count_);
    for (std::size_t i = 0; i < count_; ++i) values[i] = element(i, world.rank());
    send_.write(0, std::as_bytes(std::span(values)));
  }

  void on_device() {
    MPI_Allreduce(send_.data(), recv_.data(), static_cast<int>(count_), MPI_FLOAT, MPI_SUM,
                  MPI_COMM_WORLD);
  }

  void by_hand() {
    copy(host_send_.data(), send_.data());
    MPI_Allreduce(host_send_.data(), host_recv_.data(), static_cast<int>(count_), MPI_FLOAT,
                  MPI_SUM, MPI_COMM_WORLD);
    copy(recv_.data(), host_recv_.data());
  }

  /// The slowest rank's time.
  template <typename Call>
  double microseconds(Call&& call) {
    world_.barrier();
    const auto begin = Clock::now();
    call();
    return world_.largest(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  }

  /// Poisons what is received, makes the call once more, and compares every element.
  template <typename Call>
  bool verify(Call&& call) {
    std::vector<float> got(count_, -1.0F);
    recv_.write(0, std::as_bytes(std::span(got)));
    call();
    recv_.read(0, std::as_writable_bytes(std::span(got)));
    std::uint64_t wrong = 0;
    for (std::size_t i = 0; i < count_; ++i) {
      float sum = 0;
      for (int rank = 0; rank < world_.size(); ++rank) sum += element(i, rank);
      wrong += got[i] != sum ? 1 : 0;
    }
    return world_.sum(wrong) == 0;
  }

 private:
  void copy(void* to, const void* from) {
    const Cuda& cuda = Cuda::get();
    const auto address = [](const void* memory) { return reinterpret_cast<CUdeviceptr>(memory); };
    cuda.check(cuda.memcpy_async(address(to), address(from), count_ * sizeof(float), nullptr),
               "cuMemcpyAsync");
    cuda.check(cuda.stream_synchronize(nullptr), "cuStreamSynchronize");
  }

  const World& world_;
  std::size_t count_;
  Memory send_;
  Memory recv_;
  Pinned host_send_;
  Pinned host_recv_;
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

nlohmann::ordered_json row_of(const World& world, const Settings& settings, std::size_t bytes) {
  Test test(world, bytes);
  const auto device = [&] { test.on_device(); };
  const auto by_hand = [&] { test.by_hand(); };
  std::vector<double> device_us;
  std::vector<double> by_hand_us;
  for (int i = -settings.warmup; i < settings.iterations; ++i) {
    const double a = settings.device ? test.microseconds(device) : 0;
    const double b = settings.by_hand ? test.microseconds(by_hand) : 0;
    if (i < 0) continue;
    device_us.push_back(a);
    by_hand_us.push_back(b);
  }
  nlohmann::ordered_json row{{"bytes", bytes}, {"iterations", settings.iterations}};
  bool verified = true;
  if (settings.device) {
    const double us = median(device_us);
    const double ranks = world.size();
    verified = test.verify(device);
    row["device_us"] = us;
    row["bus_gbps"] = static_cast<double>(bytes) * 2 * (ranks - 1) / ranks / us / 1e3;
  }
  if (settings.by_hand) {
    row["by_hand_us"] = median(by_hand_us);
    verified = test.verify(by_hand) && verified;
  }
  if (settings.device && settings.by_hand)
    row["speedup"] = row["by_hand_us"].get<double>() / row["device_us"].get<double>();
  row["verified"] = verified;
  return row;
}

void read_ways(Settings& settings, std::string_view option, std::string_view value) {
  if (value != "both" && value != "device" && value != "by-hand")
    throw UsageError(fmt::format("{}: '{}' is none of both, device, by-hand", option, value));
  settings.device = value != "by-hand";
  settings.by_hand = value != "device";
}

int run(const World& world, int argc, char** argv) {
  Settings settings;
  Arguments arguments;
  arguments.option("--sizes", "LIST", "sizes such as 64K,1M:1G (default 64M)",
                   [&](auto name, auto value) { settings.sizes = parse_sizes(name, value); });
  arguments.option(
      "--iterations", "N", "timed, of each size (default 20)",
      [&](auto name, auto value) { settings.iterations = parse_count(name, value, 1, 1 << 20); });
  arguments.option("--warmup", "N", "untimed, before them (default 3)", [&](auto name, auto value) {
    settings.warmup = parse_count(name, value, 0, 1 << 20);
  });
  arguments.option("--ways", "both|device|by-hand", "on GPU memory, or by hand (default both)",
                   [&](auto name, auto value) { read_ways(settings, name, value); });
  arguments.option("--json", "FILE", "also write the results there",
                   [&](auto, auto value) { settings.json = value; });
  std::string help;
  if (!arguments.parse(argc, argv, "mpi_allreduce: sums of floats on GPU memory", help)) {
    if (world.root()) fmt::print("{}", help);
    return 0;
  }
  nlohmann::ordered_json document{{"program", "mpi_allreduce"},
                                  {"mpi", library_version()},
                                  {"ranks", world.size()},
                                  {"gpu", use_gpu(world.local_rank())}};
  bool verified = true;
  for (const std::size_t bytes : settings.sizes) {
    const auto row = row_of(world, settings, bytes / sizeof(float) * sizeof(float));
    verified = verified && row["verified"].get<bool>();
    if (world.root()) fmt::print("{}\n", row.dump());
    document["rows"].push_back(row);
  }
  if (world.root() && !settings.json.empty())
    std::ofstream(settings.json) << document.dump(1) << '\n';
  return verified ? 0 : 1;
}

}  // namespace
}  // namespace mpi_bench

int main(int argc, char** argv) { return mpi_bench::with_world(argc, argv, mpi_bench::run); }
