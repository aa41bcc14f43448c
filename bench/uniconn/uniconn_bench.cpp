// Latency and bandwidth of UNICONN's host calls between two ranks, against the same calls of the
// backend's own library, in alternating rows, with a control (the library against itself).
//
//   uniconn_bench TEST BACKEND SIZES [WINDOW] [PAIRS] [--threads]
//
//   TEST     latency (a message to and fro) or bandwidth (WINDOW messages in a group, one way)
//   BACKEND  polypath, gpuccl
//   SIZES    bytes, separated by commas
//
// One process a rank, started with torchrun's variables, or with --threads two threads of this one,
// which a simulated node in virtual time needs. Rank 0 prints a JSON object a size: us one way and
// CPU ns of a call (median over the rows; of the slower rank), GB/s, what the library takes, and by
// how much the control differs. Every message is compared, to the last byte, before it is timed.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "polypath/uniconn/backend/gpuccl.hpp"
#include "ways.hpp"

namespace uniconn_bench {
namespace {

struct Options {
  bool is_latency = true;
  std::string backend;
  std::vector<std::size_t> sizes;
  int window = 1;
  int pairs = 9;
  bool on_threads = false;
};

struct Row {
  double us = 0;      ///< one message, one way
  double cpu_ns = 0;  ///< of a call
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void meet(const uc::Bootstrap& bootstrap) { static_cast<void>(bootstrap.gather(char{})); }

/// What a rank needs to time rows together with the other one.
class Bench {
 public:
  Bench(const uc::Bootstrap& bootstrap, const Options& options, const Gpu& gpu)
      : bootstrap_(bootstrap), options_(options), gpu_(gpu) {}

  template <typename Way>
  Row time(Way& way, std::size_t bytes) {
    const int turns = turns_of(bytes);
    meet(bootstrap_);
    const bool is_first = bootstrap_.rank() == 0;
    int calls = 0;
    gpu_.begin();
    const auto began = std::chrono::steady_clock::now();
    for (int turn = 0; turn < turns; ++turn) {
      if (options_.is_latency) {
        is_first ? way.post(bytes) : way.acknowledge(bytes);
        is_first ? way.acknowledge(bytes) : way.post(bytes);
        calls += 2;
      } else {
        way.start();
        for (int i = 0; i < options_.window; ++i)
          is_first ? way.post(bytes) : way.acknowledge(bytes);
        way.end();
        // The window ends when the other side says so.
        is_first ? way.acknowledge(1) : way.post(1);
        calls += options_.window + 1;
      }
    }
    const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - began;
    gpu_.end();
    const double us = gpu_.elapsed_us();
    const int messages = options_.is_latency ? 2 * turns : options_.window * turns;
    const Row mine{us / messages, spent.count() / calls};
    Row slower{};
    for (const Row& one : bootstrap_.gather(mine))
      slower = {std::max(slower.us, one.us), std::max(slower.cpu_ns, one.cpu_ns)};
    return slower;
  }

 private:
  [[nodiscard]] int turns_of(std::size_t bytes) const {
    const std::size_t each = bytes * static_cast<std::size_t>(options_.window);
    return static_cast<int>(std::clamp<std::size_t>((std::size_t{256} << 20) / (each + 1), 4, 100));
  }

  const uc::Bootstrap& bootstrap_;
  const Options& options_;
  const Gpu& gpu_;
};

/// Throws unless what rank 0 sends arrives whole.
template <typename B>
void verify(const uc::Bootstrap& bootstrap, const Gpu& gpu, Place<B>& place, ByUniconn<B>& way,
            std::size_t bytes) {
  const auto wanted = contents(bytes, bytes);
  if (place.rank == 0) {
    gpu.write(place.sent, wanted, bytes);
  } else {
    gpu.poison(place.came, bytes);
  }
  meet(bootstrap);
  bool is_right = true;
  if (place.rank == 0) {
    way.post(bytes);
    gpu.synchronize();
  } else {
    way.acknowledge(bytes);
    gpu.synchronize();
    is_right = gpu.read(place.came, bytes) == wanted;
  }
  for (const char right : bootstrap.gather(static_cast<char>(is_right)))
    if (right == 0) throw std::runtime_error(std::to_string(bytes) + " bytes arrived wrong");
}

template <typename B>
void run(uc::Bootstrap bootstrap, const Options& options) {
  const uc::Bootstrap meeting = bootstrap;
  if (meeting.size() != 2) throw std::runtime_error("two ranks are wanted");
  uc::Environment<B> env(std::move(bootstrap));
  const int number = options.on_threads ? env.WorldRank() : env.NodeRank();
  env.SetDevice(number);
  const Gpu gpu;
  uc::Communicator<B> comm;
  const std::size_t most = *std::ranges::max_element(options.sizes);
  Place<B> place(env.WorldRank(), most);
  ByUniconn<B> ours(place, comm, gpu.stream);
  Native<B> native(meeting, number, most, gpu.stream);
  Bench bench(meeting, options, gpu);
  for (const std::size_t bytes : options.sizes) {
    verify(meeting, gpu, place, ours, bytes);
    std::vector<double> us, native_us, ns, native_ns, ratio, control, more_ns;
    for (int pair = -2; pair < options.pairs; ++pair) {
      const Row mine = bench.time(ours, bytes);
      const Row first = bench.time(native, bytes);
      const Row second = bench.time(native, bytes);
      if (pair < 0) continue;
      us.push_back(mine.us);
      ns.push_back(mine.cpu_ns);
      native_us.push_back(first.us);
      native_ns.push_back(first.cpu_ns);
      ratio.push_back(mine.us / first.us);
      control.push_back(second.us / first.us);
      more_ns.push_back(mine.cpu_ns - first.cpu_ns);
    }
    if (meeting.rank() != 0) continue;
    std::printf(
        "{\"test\": \"%s\", \"backend\": \"%s\", \"bytes\": %zu, \"window\": %d, \"us\": %.3f, "
        "\"gbps\": %.2f, \"native_us\": %.3f, \"times_native\": %.4f, \"control\": %.4f, "
        "\"cpu_ns\": %.0f, \"native_cpu_ns\": %.0f, \"more_cpu_ns\": %.0f, \"verified\": true}\n",
        options.is_latency ? "latency" : "bandwidth", B::kName, bytes, options.window, median(us),
        static_cast<double>(bytes) / median(us) / 1000, median(native_us), median(ratio),
        median(control), median(ns), median(native_ns), median(more_ns));
    std::fflush(stdout);
  }
  gpu.synchronize();
  meet(meeting);
}

void run(uc::Bootstrap bootstrap, const Options& options) {
  if (options.backend == "polypath") return run<uc::PolypathBackend>(std::move(bootstrap), options);
  if (options.backend == "gpuccl") return run<uc::GpucclBackend>(std::move(bootstrap), options);
  throw std::runtime_error("BACKEND is polypath or gpuccl");
}

Options parsed(std::vector<std::string> words) {
  Options options;
  std::erase_if(words, [&](const std::string& word) {
    if (word == "--threads") options.on_threads = true;
    return word == "--threads";
  });
  if (words.size() < 3 || (words[0] != "latency" && words[0] != "bandwidth"))
    throw std::runtime_error(
        "uniconn_bench latency|bandwidth polypath|gpuccl SIZES [WINDOW] [PAIRS] [--threads]");
  options.is_latency = words[0] == "latency";
  options.backend = words[1];
  for (std::size_t at = 0; at < words[2].size();) {
    std::size_t used = 0;
    options.sizes.push_back(std::stoull(words[2].substr(at), &used));
    at += used + 1;
  }
  if (words.size() > 3) options.window = std::max(1, std::stoi(words[3]));
  if (words.size() > 4) options.pairs = std::max(1, std::stoi(words[4]));
  return options;
}

}  // namespace
}  // namespace uniconn_bench

int main(int argc, char** argv) {
  using namespace uniconn_bench;
  try {
    const Options options = parsed({argv + 1, argv + argc});
    if (!options.on_threads) {
      run(uc::Bootstrap::environment(), options);
      return 0;
    }
    std::atomic<bool> is_well = true;
    {
      std::vector<std::jthread> ranks;
      for (uc::Bootstrap& bootstrap : uc::Bootstrap::threads(2))
        ranks.emplace_back([&options, &is_well, its = std::move(bootstrap)]() mutable {
          try {
            run(std::move(its), options);
          } catch (const std::exception& error) {
            std::fprintf(stderr, "%s\n", error.what());
            is_well = false;
          }
        });
    }
    return is_well ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
