// The program's copies from GPU to GPU next to a kernel that waits for the CPU: they end though it
// does not. By the driver as the program finds it, so under `polypath run` by the shim.
#include <dlfcn.h>

#include <chrono>
#include <cstdlib>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "groups.hpp"
#include "host_pairs.hpp"

namespace messaging_bench {
namespace {

/// What a program calls, not what polypath's own library does.
class ProgramsDriver {
 public:
  ProgramsDriver() {
    const char* const named = std::getenv("POLYPATH_DRIVER_LIBRARY");
    void* const library = dlopen(named != nullptr ? named : "libcuda.so.1", RTLD_NOW);
    if (library == nullptr) throw std::runtime_error(dlerror());
    find(library, copy_, "cuMemcpyDtoDAsync_v2");
    find(library, synchronize_, "cuStreamSynchronize");
  }
  void copy(void* to, const void* from, std::size_t bytes, Stream stream) const {
    require(copy_(reinterpret_cast<std::uintptr_t>(to), reinterpret_cast<std::uintptr_t>(from),
                  bytes, stream),
            "cuMemcpyDtoDAsync");
  }
  void synchronize(Stream stream) const { require(synchronize_(stream), "cuStreamSynchronize"); }

 private:
  template <typename Function>
  static void find(void* library, Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    if (function == nullptr) throw std::runtime_error(std::string("the driver has no ") + name);
  }
  static void require(int result, const char* call) {
    if (result != 0) throw std::runtime_error(call + (": " + std::to_string(result)));
  }

  int (*copy_)(unsigned long long, unsigned long long, std::size_t, Stream) = nullptr;
  int (*synchronize_)(Stream) = nullptr;
};

}  // namespace

void beside_lines(Bench& bench) {
  const char* const kGroup = "remote";
  const std::string line = "copies of 64 MiB from GPU to GPU, beside a kernel that waits";
  if (!bench.wants(line)) return;
  if (bench.gpus() < 2) return bench.skipped(kGroup, line, "there is one GPU");
  Gpu& from = bench.gpu(0);
  Gpu& to = bench.gpu(1);
  const std::size_t bytes = bench.sized(std::size_t{64} << 20, std::size_t{4} << 20);
  const int copies = bench.sized(16, 2);
  const ProgramsDriver driver;
  std::vector<std::uint64_t> data(bytes / sizeof(std::uint64_t));
  std::mt19937_64 random(11);
  void* const source = from.alloc(bytes);
  void* const target = to.alloc(bytes);

  HostTrips trips(bench, 10);
  const double us = bench.median_us(line, [&] {
    for (std::uint64_t& each : data) each = random();
    from.write(source, data.data(), bytes);
    to.set(target, 0xA5, bytes);
    trips.launch();
    trips.pop(0, line);  // the kernel runs, and waits for the answer
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < copies; ++i) driver.copy(target, source, bytes, from.stream(1));
    driver.synchronize(from.stream(1));
    const double took = us_since(begin);
    expect(to.read<std::uint64_t>(target, data.size()) == data, line + ": other bytes");
    trips.push();
    for (std::uint32_t round = 1; round < trips.rounds(); ++round) {
      trips.pop(round, line);
      trips.push();
    }
    from.synchronize();
    return took;
  });
  trips.check_all(line);
  from.free_all();
  to.free_all();
  bench.figure(kGroup, line, static_cast<double>(bytes) * copies / us * 1e-3, "GB/s");
}

}  // namespace messaging_bench
