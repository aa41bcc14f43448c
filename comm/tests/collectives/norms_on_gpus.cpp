// The kernel that sums rows over ranks and normalises them, on the GPUs of this machine, one
// process: turns of random calls whose ranks start at random moments, every byte checked; then how
// long calls take, by blocks and how many of them share a row, next to an allreduce of as many
// elements by cells and by lines, alone and followed by the kernel that normalises.
//
//   norms_on_gpus [--gpus N] [--ranks N] [--turns N] [--rows 1,2,4,8|none] [--hidden N]
//                 [--driver libcuda.so.1]
//
// --ranks: more than GPUs, so that one or two GPUs can try the kernels of eight ranks. Ranks that
// share a GPU are not timed.
#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <sstream>
#include <stdexcept>

#include "driver/cuda_driver.hpp"
#include "gpu_ranks.hpp"
#include "norm_case.hpp"

namespace polypath::test {
namespace {

struct Options {
  RankCounts counts;
  std::uint64_t turns = 100;
  std::vector<std::uint32_t> rows{1, 2, 4, 8, 16, 32, 64};
  std::uint32_t hidden = 5120;
  std::string driver = "libcuda.so.1";
};

/// A call with its memory on each GPU.
struct PlacedNorm {
  NormCase what;
  std::vector<NormImage> images;
  std::vector<CUdeviceptr> memory;  ///< by rank
};

PlacedNorm placed(GpuRanks& ranks, Random& random, const NormCase& what) {
  PlacedNorm call{what, norm_images(random, what), {}};
  for (std::uint32_t rank = 0; rank < ranks.size(); ++rank)
    call.memory.push_back(ranks[rank].alloc(call.images[rank].before.size()));
  return call;
}

NormArgs args_on(GpuRanks& ranks, const PlacedNorm& call, std::uint32_t rank) {
  NormArgs args = norm_args_of(call.what, ranks.shape(), rank);
  const NormImage& image = call.images[rank];
  const CUdeviceptr at = call.memory[rank];
  ranks.complete(args.call, at + image.in_at, at + image.out_at);
  const auto pointer = [&](std::uint64_t offset) { return reinterpret_cast<void*>(at + offset); };
  args.residual = call.what.has_residual ? pointer(image.residual_at) : nullptr;
  args.residual_out = pointer(image.residual_out_at);
  args.weight = pointer(image.weight_at);
  args.scale = call.what.to_float8 ? static_cast<const float*>(pointer(image.scale_at)) : nullptr;
  return args;
}

void write(const CudaDriver& driver, const PlacedNorm& call, GpuRank& rank) {
  const Bytes& before = call.images[rank.rank()].before;
  POLYPATH_CHECK(driver, memcpy_sync(call.memory[rank.rank()],
                                     reinterpret_cast<CUdeviceptr>(before.data()), before.size()));
  POLYPATH_CHECK(driver, stream_synchronize(nullptr));
}

std::string difference_on(const CudaDriver& driver, const PlacedNorm& call, std::uint32_t rank) {
  Bytes contents(call.images[rank].after.size());
  POLYPATH_CHECK(driver, memcpy_sync(reinterpret_cast<CUdeviceptr>(contents.data()),
                                     call.memory[rank], contents.size()));
  return difference(call.images[rank], contents.data());
}

void free_all(const CudaDriver& driver, GpuRanks& ranks, const PlacedNorm& call) {
  for (std::uint32_t rank = 0; rank < ranks.size(); ++rank) {
    ranks[rank].use();
    POLYPATH_CHECK(driver, mem_free(call.memory[rank]));
  }
}

/// Calls one after another, begun at random moments. Empty, or what was wrong.
std::string run_turn(const CudaDriver& driver, GpuRanks& ranks, Random& random,
                     std::uint32_t max_hidden, std::uint32_t max_blocks) {
  std::vector<PlacedNorm> calls;
  for (int call = 0; call < 8; ++call)
    calls.push_back(
        placed(ranks, random, random_norm(random, ranks.size(), max_hidden, 100000, max_blocks)));
  const std::uint64_t seed = random();
  std::vector<std::string> wrong(ranks.size());
  std::barrier ready(ranks.size());
  ranks.on_all([&](GpuRank& rank) {
    const std::uint32_t r = rank.rank();
    for (const PlacedNorm& call : calls) write(driver, call, rank);
    Random skew(seed + r);
    ready.arrive_and_wait();
    for (const PlacedNorm& call : calls) {
      const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(skew() % 60);
      while (std::chrono::steady_clock::now() < until) {
      }
      rank.launch_norm(true, args_on(ranks, call, r), call.what.blocks_of(r));
    }
    rank.synchronize();
    for (const PlacedNorm& call : calls)
      if (const std::string text = difference_on(driver, call, r); !text.empty())
        wrong[r] += "rank " + std::to_string(r) + ": " + call.what.text() + "\n  " + text + "\n";
  });
  std::string text = ranks.failures();
  for (const std::string& line : wrong) text += line;
  for (const PlacedNorm& call : calls) free_all(driver, ranks, call);
  return text;
}

/// us of a call in a sequence, on the slowest rank.
double time_of(const CudaDriver& driver, GpuRanks& ranks,
               const std::function<void(GpuRank&)>& launch) {
  constexpr int kCalls = 200;
  std::vector<float> ms(ranks.size());
  std::barrier ready(ranks.size());
  ranks.on_all([&](GpuRank& rank) {
    CUevent begin = nullptr;
    CUevent end = nullptr;
    POLYPATH_CHECK(driver, event_create(&begin, CU_EVENT_DEFAULT));
    POLYPATH_CHECK(driver, event_create(&end, CU_EVENT_DEFAULT));
    for (int call = 0; call < 10; ++call) launch(rank);
    rank.synchronize();
    ready.arrive_and_wait();
    launch(rank);  // takes what the ranks' starts are apart
    POLYPATH_CHECK(driver, event_record(begin, rank.stream()));
    for (int call = 0; call < kCalls; ++call) launch(rank);
    POLYPATH_CHECK(driver, event_record(end, rank.stream()));
    rank.synchronize();
    POLYPATH_CHECK(driver, event_elapsed_time(&ms[rank.rank()], begin, end));
    POLYPATH_CHECK(driver, event_destroy(begin));
    POLYPATH_CHECK(driver, event_destroy(end));
  });
  if (const std::string failures = ranks.failures(); !failures.empty())
    throw std::runtime_error(failures);
  return 1000.0 * *std::ranges::max_element(ms) / kCalls;
}

double all_reduce_us(const CudaDriver& driver, GpuRanks& ranks, const PlacedNorm& call,
                     KernelFamily family, bool with_norm) {
  const std::uint64_t bytes_per_block = family == KernelFamily::lines ? 4096 : 2048;
  CollectiveCase what;
  what.family = family;
  what.type = call.what.type;
  what.ranks = ranks.size();
  what.count = std::uint64_t{call.what.rows} * call.what.hidden;
  what.stages = 1;
  what.blocks = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>((call.what.bytes() - 1) / bytes_per_block + 1, 1, 96));
  return time_of(driver, ranks, [&](GpuRank& rank) {
    NormArgs norm = args_on(ranks, call, rank.rank());
    CollectiveArgs args = args_of(what, ranks.shape(), rank.rank());
    ranks.complete(args, reinterpret_cast<CUdeviceptr>(norm.call.in),
                   reinterpret_cast<CUdeviceptr>(norm.call.out));
    rank.launch(what.family, {args, false, {}}, what.form(), what.blocks);
    norm.call.in = norm.call.out;
    if (with_norm) rank.launch_norm(false, norm, call.what.rows);
  });
}

/// Whether all were exact.
bool print_times(const CudaDriver& driver, GpuRanks& ranks, Random& random, const Options& options,
                 std::uint32_t rows) {
  NormCase what;
  what.ranks = ranks.size();
  what.rows = rows;
  what.hidden = options.hidden;
  PlacedNorm call = placed(ranks, random, what);
  ranks.on_all([&](GpuRank& rank) { write(driver, call, rank); });
  const double by_cells = all_reduce_us(driver, ranks, call, KernelFamily::cells, false);
  const double by_lines = all_reduce_us(driver, ranks, call, KernelFamily::lines, false);
  const double apart = all_reduce_us(driver, ranks, call, KernelFamily::lines, true);
  const double alone = std::min(by_cells, by_lines);
  std::printf("%u rows of %u: allreduce %.2f us by cells, %.2f us by lines, and norm %.2f us\n",
              rows, what.hidden, by_cells, by_lines, apart);
  bool all_exact = true;
  for (const std::uint32_t team : {1U, 2U, 3U, 5U, 7U, 14U})
    for (const std::uint32_t factor : {1U, 2U, 4U, 7U, 14U}) {
      const std::uint32_t blocks = rows * team * factor;
      if (blocks > 128 && !(team == 1 && factor == 1)) continue;
      call.what.team = team;
      call.what.blocks = std::min(blocks, 128U);
      ranks.on_all([&](GpuRank& rank) { write(driver, call, rank); });
      const double us = time_of(driver, ranks, [&](GpuRank& rank) {
        rank.launch_norm(true, args_on(ranks, call, rank.rank()), call.what.blocks);
      });
      bool is_exact = true;
      for (std::uint32_t rank = 0; rank < ranks.size(); ++rank) {
        ranks[rank].use();
        is_exact = is_exact && difference_on(driver, call, rank).empty();
      }
      all_exact = all_exact && is_exact;
      std::printf(
          "  %3u blocks in teams of %2u: %.2f us, %.2f of the allreduce, %.2f of both  %s\n",
          call.what.blocks, team, us, us / alone, us / apart, is_exact ? "exact" : "WRONG");
    }
  std::fflush(stdout);
  free_all(driver, ranks, call);
  return all_exact;
}

bool run(const Options& options) {
  std::string why;
  const auto driver = load_cuda_driver(options.driver, &why);
  if (driver == nullptr) throw std::runtime_error(why);
  const RankCounts counts = counted(*driver, options.counts);
  Random random(1);
  const bool is_simulated = options.rows.empty();
  constexpr std::uint32_t kRegion = 1536 * 1024;
  GpuRanks ranks(*driver, {counts.ranks, 128, 4, 4096, kRegion, is_simulated ? 0 : kRegion},
                 counts.gpus);
  const std::uint32_t max_blocks = std::min(24U, counts.max_blocks(*driver));
  for (std::uint64_t turn = 0; turn < options.turns; ++turn)
    if (const std::string wrong =
            run_turn(*driver, ranks, random, is_simulated ? 1000 : 9000, max_blocks);
        !wrong.empty()) {
      std::printf("turn %llu is wrong:\n%s", static_cast<unsigned long long>(turn), wrong.c_str());
      return false;
    }
  std::printf("%llu turns of calls of %u ranks on %u GPUs: all right\n",
              static_cast<unsigned long long>(options.turns), counts.ranks, counts.gpus);
  bool exact = true;
  if (counts.share_gpus()) return exact;
  for (const std::uint32_t rows : options.rows)
    exact = print_times(*driver, ranks, random, options, rows) && exact;
  return exact;
}

Options parsed(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (i + 1 == argc) throw std::runtime_error(name + " needs a value");
    const std::string value = argv[++i];
    if (name == "--gpus")
      options.counts.gpus = static_cast<std::uint32_t>(std::stoul(value));
    else if (name == "--ranks")
      options.counts.ranks = static_cast<std::uint32_t>(std::stoul(value));
    else if (name == "--turns")
      options.turns = std::stoull(value);
    else if (name == "--hidden")
      options.hidden = static_cast<std::uint32_t>(std::stoul(value));
    else if (name == "--driver")
      options.driver = value;
    else if (name == "--rows") {
      options.rows.clear();
      std::istringstream list(value == "none" ? "" : value);
      for (std::string number; std::getline(list, number, ',');)
        options.rows.push_back(static_cast<std::uint32_t>(std::stoul(number)));
    } else {
      throw std::runtime_error("there is no " + name);
    }
  }
  return options;
}

}  // namespace
}  // namespace polypath::test

int main(int argc, char** argv) {
  // A kernel that is loaded as it is first launched may wait for those that run, and they for it.
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  // Kernels of ranks that share a GPU wait for each other: each stream needs a hardware queue.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
  try {
    return polypath::test::run(polypath::test::parsed(argc, argv)) ? EXIT_SUCCESS : EXIT_FAILURE;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "norms_on_gpus: %s\n", error.what());
    return EXIT_FAILURE;
  }
}
