// The collectives' kernels on the GPUs of this machine, one process: random rows of calls whose
// ranks start at random moments, every byte checked; then how long calls take, by size, kernel and
// shape.
//
//   kernels_on_gpus [--gpus N] [--ranks N] [--relays N] [--rows N] [--seed N] [--most BYTES] [--all]
//                   [--op allreduce|...] [--driver LIBRARY] [--type float32|bfloat16] [--factor N]
//                   [--order rank|tree] [--uneven 1] [--least BYTES] [--blocks N,N...]
//                   [--tiles BYTES,BYTES...] [--calls N]
//
// --ranks: more than GPUs, so that one or two GPUs can try the kernels of eight ranks. Ranks that
// share a GPU are not timed.
// --relays: GPUs after those of the ranks, over which some calls by channels go; where there are none
// their memory lies on a rank's.
// --factor: from one size to the next, default 4. --blocks, --tiles: those that channels are timed
// with. A few blocks carry about what a link of a mesh does, and three times as many, over relays, what three do.
// --calls: timed of each shape. --order: of sums. --uneven 1: reduce_scatter and
// all_gather by the kernels of uneven parts, whose parts are as long as even ones: what these
// kernels cost.
#include <algorithm>
#include <array>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "collective_case.hpp"
#include "gpu_ranks.hpp"

namespace polypath::test {
namespace {

constexpr std::uint32_t kKiB = 1024;
constexpr std::uint64_t kMiB = 1024 * kKiB;

struct Options {
  RankCounts counts;
  std::uint32_t relays = 0;
  std::uint64_t rows = 300;
  std::uint64_t seed = 1;
  std::uint64_t least = 4 * kKiB;
  std::uint64_t most = 256 * kMiB;
  std::uint64_t factor = 4;
  std::vector<std::uint32_t> blocks{8, 16, 32, 64, 96, 128};  ///< of calls by channels
  std::vector<std::uint32_t> tiles{4 * kKiB, 8 * kKiB, 16 * kKiB, 32 * kKiB, 64 * kKiB};
  bool all = false;  ///< print every shape, not the best of each kernel
  int calls = 0;     ///< timed of each shape, after one more; 0: by their size
  std::string op = "allreduce";
  DataType type = DataType::float32;
  SumOrder order = SumOrder::rank;
  bool uneven = false;
  std::string driver = "libcuda.so.1";
};

/// A row: calls one after another on each rank's stream, begun at random moments.
bool run_row(const CudaDriver& driver, GpuRanks& ranks, const std::vector<CUdeviceptr>& memory,
             Random& random, std::uint32_t max_blocks, std::uint64_t row) {
  constexpr int kCalls = 6;
  constexpr std::uint64_t kMaxBytes = kMiB;
  std::vector<CollectiveCase> cases;
  std::vector<std::vector<Image>> images;
  std::vector<std::vector<std::uint64_t>> places(ranks.size());
  std::vector<std::uint64_t> ends(ranks.size(), 0);
  for (int call = 0; call < kCalls; ++call) {
    CollectiveCase& what =
        cases.emplace_back(random_case(random, ranks.shape(), kMaxBytes, max_blocks));
    if (random() % 2 == 0) what.order = SumOrder::tree;
    const bool has_parts =
        what.op == CollectiveOp::reduce_scatter || what.op == CollectiveOp::all_gather;
    if (has_parts && random() % 2 == 0) {
      // At the begin of all parts a rank's own would be written to before it is read.
      if (what.placement == Placement::in_place) what.placement = Placement::own_part;
      make_uneven(random, what);
    }
    take_other_family(ranks.shape(), what);
    what.is_relayed =
        ranks.relays() > 0 && what.family == KernelFamily::channels && random() % 4 != 0;
    images.push_back(images_of(random, cases.back()));
    for (std::uint32_t rank = 0; rank < ranks.size(); ++rank) {
      places[rank].push_back(ends[rank]);
      ends[rank] += (images.back()[rank].before.size() + 255) / 256 * 256;
    }
  }
  std::vector<std::uint64_t> seeds;
  for (std::uint32_t rank = 0; rank < ranks.size(); ++rank) seeds.push_back(random());
  std::vector<std::string> wrong(ranks.size());
  std::barrier ready(ranks.size());
  ranks.on_all([&](GpuRank& rank) {
    const std::uint32_t r = rank.rank();
    for (int call = 0; call < kCalls; ++call)
      POLYPATH_CHECK(driver,
                     memcpy_async(memory[r] + places[r][call],
                                  reinterpret_cast<CUdeviceptr>(images[call][r].before.data()),
                                  images[call][r].before.size(), rank.stream()));
    rank.synchronize();
    Random skew(seeds[r]);
    ready.arrive_and_wait();
    for (int call = 0; call < kCalls; ++call) {
      UnevenArgs args = args_of(cases[call], ranks.shape(), r);
      const CUdeviceptr at = memory[r] + places[r][call];
      ranks.complete(args, at + images[call][r].in_at, at + images[call][r].out_at,
                     cases[call].is_relayed);
      if (skew() % 2 == 0) {
        const auto until =
            std::chrono::steady_clock::now() + std::chrono::microseconds(skew() % 100);
        while (std::chrono::steady_clock::now() < until) {
        }
      }
      if (const char* what = validate_args(cases[call].family, args, cases[call].blocks_of(r)))
        throw std::runtime_error(cases[call].text() + ": " + what);
      rank.launch(cases[call].family, args, cases[call].form(), cases[call].blocks_of(r));
    }
    rank.synchronize();
    for (int call = 0; call < kCalls; ++call) {
      Bytes contents(images[call][r].after.size());
      POLYPATH_CHECK(driver, memcpy_sync(reinterpret_cast<CUdeviceptr>(contents.data()),
                                         memory[r] + places[r][call], contents.size()));
      const std::string text = difference(images[call][r], contents.data());
      if (!text.empty() && wrong[r].empty())
        wrong[r] = "call " + std::to_string(call) + " on rank " + std::to_string(r) + ": " +
                   cases[call].text() + "\n  " + text + "\n";
    }
  });
  std::string text = ranks.failures();
  for (const std::string& line : wrong) text += line;
  if (!text.empty())
    std::printf("row %llu is wrong:\n%s", static_cast<unsigned long long>(row), text.c_str());
  return text.empty();
}

struct Timed {
  CollectiveCase what;
  double us;
  bool exact;
};

/// Calls one after another; the time of one, on the slowest rank.
class Timer {
 public:
  Timer(const CudaDriver& driver, GpuRanks& ranks, CollectiveCase largest, Random& random,
        int calls)
      : driver_(driver), ranks_(ranks), calls_(calls) {
    for (std::uint32_t rank = 0; rank < ranks.size(); ++rank) {
      inputs_.push_back(random_input(random, largest));
      in_.push_back(ranks[rank].alloc(largest.in_bytes()));
      out_.push_back(ranks[rank].alloc(largest.out_bytes()));
      POLYPATH_CHECK(driver,
                     memcpy_sync(in_.back(), reinterpret_cast<CUdeviceptr>(inputs_.back().data()),
                                 largest.in_bytes()));
      POLYPATH_CHECK(driver, stream_synchronize(nullptr));  // not pinned: it may be on its way
      CUevent& begin = begin_.emplace_back();
      CUevent& end = end_.emplace_back();
      POLYPATH_CHECK(driver, event_create(&begin, CU_EVENT_DEFAULT));
      POLYPATH_CHECK(driver, event_create(&end, CU_EVENT_DEFAULT));
    }
    void* pinned = nullptr;
    POLYPATH_CHECK(driver, mem_host_alloc(&pinned, largest.out_bytes() * ranks.size(),
                                          CU_MEMHOSTALLOC_PORTABLE));
    found_ = static_cast<unsigned char*>(pinned);
    stride_ = largest.out_bytes();
  }

  /// The outputs that all calls of this operation, type and count must have.
  void expect(const CollectiveCase& what) {
    expected_.clear();
    std::vector<Bytes> inputs;
    for (const Bytes& input : inputs_)
      inputs.emplace_back(input.begin(),
                          input.begin() + static_cast<std::ptrdiff_t>(what.in_bytes()));
    for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank)
      expected_.push_back(rank > 0 && what.op == CollectiveOp::allreduce
                              ? Bytes{}
                              : expected_output(what, inputs, rank));
  }

  Timed time(const CollectiveCase& what) {
    const std::uint64_t bytes = std::max(what.in_bytes(), what.out_bytes());
    const int warm = calls_ > 0 ? 1 : 3;
    const int calls = calls_ > 0 ? calls_ : bytes <= kMiB ? 100 : bytes <= 32 * kMiB ? 30 : 8;
    std::vector<float> ms(ranks_.size());
    std::vector<char> exact(ranks_.size(), 1);
    std::barrier ready(ranks_.size());
    ranks_.on_all([&](GpuRank& rank) {
      const std::uint32_t r = rank.rank();
      UnevenArgs args = args_of(what, ranks_.shape(), r);
      ranks_.complete(args, in_[r], out_[r], what.is_relayed);
      POLYPATH_CHECK(driver_, memset_d8_async(out_[r], 0xA5, what.out_bytes(), rank.stream()));
      for (int call = 0; call < warm; ++call)
        rank.launch(what.family, args, what.form(), what.blocks_of(r));
      rank.synchronize();
      ready.arrive_and_wait();
      // The first of the row takes what the ranks' starts are apart.
      rank.launch(what.family, args, what.form(), what.blocks_of(r));
      POLYPATH_CHECK(driver_, event_record(begin_[r], rank.stream()));
      for (int call = 0; call < calls; ++call)
        rank.launch(what.family, args, what.form(), what.blocks_of(r));
      POLYPATH_CHECK(driver_, event_record(end_[r], rank.stream()));
      rank.synchronize();
      POLYPATH_CHECK(driver_, event_elapsed_time(&ms[r], begin_[r], end_[r]));
      const Bytes& expected = expected_[what.op == CollectiveOp::allreduce ? 0 : r];
      if (expected.empty()) return;
      unsigned char* const result = found_ + r * stride_;
      POLYPATH_CHECK(driver_,
                     memcpy_sync(reinterpret_cast<CUdeviceptr>(result), out_[r], expected.size()));
      exact[r] = std::memcmp(result, expected.data(), expected.size()) == 0 ? 1 : 0;
    });
    const std::string failures = ranks_.failures();
    if (!failures.empty()) throw std::runtime_error(what.text() + "\n" + failures);
    return {what, 1000.0 * *std::ranges::max_element(ms) / calls,
            std::ranges::all_of(exact, [](char right) { return right != 0; })};
  }

 private:
  const CudaDriver& driver_;
  GpuRanks& ranks_;
  int calls_;
  std::vector<Bytes> inputs_;
  std::vector<CUdeviceptr> in_;
  std::vector<CUdeviceptr> out_;
  std::vector<CUevent> begin_;
  std::vector<CUevent> end_;
  std::vector<Bytes> expected_;
  unsigned char* found_ = nullptr;
  std::uint64_t stride_ = 0;
};

/// Bytes that a port must carry, by the whole size of the buffers (the larger of in and out).
double bus_bytes(const CollectiveCase& what) {
  const auto bytes = static_cast<double>(std::max(what.in_bytes(), what.out_bytes()));
  const double others = static_cast<double>(what.ranks - 1) / what.ranks;
  if (what.op == CollectiveOp::allreduce) return 2 * others * bytes;
  if (what.op == CollectiveOp::broadcast || what.op == CollectiveOp::reduce) return bytes;
  return others * bytes;
}

std::vector<CollectiveCase> shapes_for(const CollectiveCase& base, const ScratchShape& shape,
                                       const Options& options) {
  std::vector<CollectiveCase> cases;
  CollectiveCase what = base;
  const bool staged = base.op == CollectiveOp::allreduce || base.op == CollectiveOp::broadcast ||
                      base.op == CollectiveOp::reduce;
  const std::uint64_t bytes = std::max(base.in_bytes(), base.out_bytes());
  for (int stages = 1; stages <= (staged ? 2 : 1); ++stages) {
    what.stages = stages;
    what.family = KernelFamily::cells;
    if (what.count <= max_by_cells(shape, what.op, what.type, stages) && bytes <= 8 * kMiB)
      for (const std::uint32_t blocks : {4, 8, 16, 32, 64, 128}) {
        what.blocks = blocks;
        cases.push_back(what);
      }
    what.family = KernelFamily::lines;
    const bool has_lines =
        collective_kernel(what.family, what.op, what.type, what.form()).name != nullptr;
    if (has_lines && what.count <= max_by_lines(shape, what.op, what.type, stages))
      for (const std::uint32_t blocks : {8, 16, 32, 64, 96, 112, 128}) {
        if (bytes > 16 * kMiB && blocks < 64) continue;
        what.blocks = blocks;
        cases.push_back(what);
      }
    what.family = KernelFamily::channels;
    if (staged && stages == 1 && bytes > 4 * kMiB && base.ranks > 2) continue;
    for (const std::uint32_t blocks : options.blocks)
      for (const std::uint32_t tile : options.tiles)
        for (const std::uint32_t lag : {2, 3, 4}) {
          if (bytes > 16 * kMiB && tile < 8 * kKiB) continue;
          // A share of one tile or less: larger tiles and lags change nothing.
          const std::uint64_t share = bytes / (stages == 2 ? base.ranks : 1) / blocks;
          if (share <= tile && lag > 2) continue;
          if (share <= tile / 2 && tile > 4 * kKiB) continue;
          what.blocks = blocks;
          what.tile_bytes = tile;
          what.lag = lag;
          what.is_relayed = false;
          cases.push_back(what);
          what.is_relayed = true;
          if (options.relays > 0) cases.push_back(what);
        }
    what.is_relayed = false;
  }
  return cases;
}

bool print_times(const CudaDriver& driver, GpuRanks& ranks, const Options& options, CollectiveOp op,
                 Random& random) {
  CollectiveCase base;
  base.op = op;
  base.type = options.type;
  base.order = options.order;
  base.ranks = ranks.size();
  const bool many =
      op != CollectiveOp::allreduce && op != CollectiveOp::broadcast && op != CollectiveOp::reduce;
  const auto count_for = [&](std::uint64_t bytes) {
    return bytes / size_of(base.type) / (many ? base.ranks : 1);
  };
  base.count = count_for(options.most);
  Timer timer(driver, ranks, base, random, options.calls);
  std::printf("%10s %-8s %6s %6s %7s %3s %10s %9s  %s\n", "bytes", "kernel", "stages", "blocks",
              "tile", "lag", "us", "bus GB/s", "exact");
  bool exact = true;
  for (std::uint64_t bytes = options.least; bytes <= options.most; bytes *= options.factor) {
    base.count = count_for(bytes);
    if (options.uneven && many && op != CollectiveOp::all_to_all)
      base.parts.assign(base.ranks, base.count);
    timer.expect(base);
    std::vector<Timed> times;
    for (const CollectiveCase& what : shapes_for(base, ranks.shape(), options))
      times.push_back(timer.time(what));
    std::ranges::stable_sort(times, {}, &Timed::us);
    std::array<std::size_t, kKernelFamilies.size()> printed{};
    for (const Timed& time : times) {
      exact = exact && time.exact;
      const KernelFamily family = time.what.family;
      if (++printed[static_cast<std::size_t>(family)] > 6 && !options.all && time.exact) continue;
      const bool has_tiles = family == KernelFamily::channels;
      std::printf(
          "%10llu %-8s %6d %6u %7u %3u %10.2f %9.1f  %s\n", static_cast<unsigned long long>(bytes),
          time.what.is_relayed ? "relayed" : to_string(family), time.what.stages, time.what.blocks,
          has_tiles ? time.what.tile_bytes : 0, has_tiles ? time.what.lag : 0, time.us,
          bus_bytes(time.what) / time.us / 1000.0, time.exact ? "yes" : "NO");
    }
    std::fflush(stdout);
  }
  return exact;
}

bool run(const Options& options) {
  std::string why;
  const auto driver = load_cuda_driver(options.driver, &why);
  if (driver == nullptr) throw std::runtime_error(why);
  const RankCounts counts = counted(*driver, options.counts);
  Random random(options.seed);

  bool right = true;
  if (options.rows > 0) {
    // Small rings and regions, so that they go round often.
    const std::uint32_t max_blocks = std::min(64U, counts.max_blocks(*driver));
    const std::uint32_t channels = std::min(32U, max_blocks);
    const ScratchShape shape{counts.ranks, channels, 4, 4096, 256 * 1024, 256 * 1024};
    GpuRanks ranks(*driver, shape, counts.gpus, options.relays);
    std::vector<CUdeviceptr> memory;
    for (std::uint32_t rank = 0; rank < ranks.size(); ++rank)
      memory.push_back(ranks[rank].alloc(64 * kMiB));
    std::uint64_t wrong = 0;
    for (std::uint64_t row = 0; row < options.rows && wrong < 5; ++row)
      wrong += run_row(*driver, ranks, memory, random, max_blocks, row) ? 0 : 1;
    std::printf("%llu rows of calls of %u ranks on %u GPUs: %llu wrong\n",
                static_cast<unsigned long long>(options.rows), counts.ranks, counts.gpus,
                static_cast<unsigned long long>(wrong));
    std::fflush(stdout);
    right = wrong == 0;
  }
  if (options.op != "none" && right && !counts.share_gpus()) {
    const ScratchShape shape{counts.ranks, 128, 8, 64 * kKiB, 12 * kMiB, 18 * kMiB};
    GpuRanks ranks(*driver, shape, counts.gpus, options.relays);
    const std::pair<const char*, CollectiveOp> ops[] = {
        {"allreduce", CollectiveOp::allreduce},   {"reduce_scatter", CollectiveOp::reduce_scatter},
        {"all_gather", CollectiveOp::all_gather}, {"broadcast", CollectiveOp::broadcast},
        {"reduce", CollectiveOp::reduce},         {"all_to_all", CollectiveOp::all_to_all}};
    for (const auto& [name, op] : ops)
      if (options.op == name || options.op == "every") {
        std::printf("%s, %u GPUs\n", name, counts.gpus);
        right = print_times(*driver, ranks, options, op, random) && right;
      }
  }
  return right;
}

/// The numbers of a list with commas.
std::vector<std::uint32_t> numbers_of(const std::string& list) {
  std::vector<std::uint32_t> numbers;
  std::istringstream text(list);
  for (std::string number; std::getline(text, number, ',');)
    numbers.push_back(static_cast<std::uint32_t>(std::stoul(number)));
  return numbers;
}

Options parsed(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--all") {
      options.all = true;
      continue;
    }
    if (i + 1 == argc) throw std::runtime_error(name + " needs a value");
    const std::string value = argv[++i];
    if (name == "--gpus")
      options.counts.gpus = static_cast<std::uint32_t>(std::stoul(value));
    else if (name == "--ranks")
      options.counts.ranks = static_cast<std::uint32_t>(std::stoul(value));
    else if (name == "--relays")
      options.relays = static_cast<std::uint32_t>(std::stoul(value));
    else if (name == "--rows")
      options.rows = std::stoull(value);
    else if (name == "--seed")
      options.seed = std::stoull(value);
    else if (name == "--factor")
      options.factor = std::max(2ULL, std::stoull(value));
    else if (name == "--least")
      options.least = std::stoull(value);
    else if (name == "--blocks")
      options.blocks = numbers_of(value);
    else if (name == "--tiles")
      options.tiles = numbers_of(value);
    else if (name == "--calls")
      options.calls = std::stoi(value);
    else if (name == "--most")
      options.most = std::stoull(value);
    else if (name == "--op")
      options.op = value;
    else if (name == "--driver")
      options.driver = value;
    else if (name == "--order")
      options.order = value == "tree" ? SumOrder::tree : SumOrder::rank;
    else if (name == "--uneven")
      options.uneven = value != "0";
    else if (name == "--type")
      options.type = value == "bfloat16" ? DataType::bfloat16 : DataType::float32;
    else
      throw std::runtime_error("there is no " + name);
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
    std::fprintf(stderr, "kernels_on_gpus: %s\n", error.what());
    return EXIT_FAILURE;
  }
}
