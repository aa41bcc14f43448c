// Queues and pairs between two GPUs, and between a GPU and the CPU. With one GPU both ends are on
// it, through the same memory and stores of system scope; the lines say so.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bench_images.hpp"
#include "groups.hpp"
#include "host_pairs.hpp"
#include "queue_memory.hpp"
#include "remote_bench.h"

namespace messaging_bench {
namespace {

using polypath::device::queue_view;

constexpr const char* kRemote = "remote";

/// The two ends, as far as there are two GPUs.
struct Ends {
  explicit Ends(Bench& bench)
      : from(bench.gpu(0)),
        to(bench.gpu(bench.gpus() > 1 ? 1 : 0)),
        are_two(bench.gpus() > 1),
        name(are_two ? "GPU to GPU" : "both ends on one GPU") {}

  Gpu& from;
  Gpu& to;
  bool are_two;
  std::string name;
};

/// A queue from rank `from` to rank `to`, as all ranks have it.
class Connected {
 public:
  Connected(Bench& bench, const polypath_queue_options& options, int from, int to)
      : queues_(static_cast<std::size_t>(bench.gpus())) {
    std::vector<polypath_comm*> comms;
    for (int rank = 0; rank < bench.gpus(); ++rank) comms.push_back(bench.comm(rank));
    check(polypath_queue_connect_all(comms.data(), bench.gpus(), &options, from, to, 1,
                                     queues_.data()));
    from_ = queues_[static_cast<std::size_t>(from)];
    to_ = queues_[static_cast<std::size_t>(to)];
  }
  ~Connected() { polypath_queue_destroy_all(queues_.data(), static_cast<int>(queues_.size())); }
  Connected(const Connected&) = delete;
  Connected& operator=(const Connected&) = delete;

  template <typename View>
  [[nodiscard]] View view(polypath_queue_side side) const {
    View view{};
    check(polypath_queue_view(side == POLYPATH_QUEUE_PRODUCER ? from_ : to_, 0, side, &view,
                              sizeof view));
    return view;
  }

 private:
  std::vector<polypath_queue*> queues_;
  polypath_queue* from_ = nullptr;
  polypath_queue* to_ = nullptr;
};

struct RemoteShape {
  unsigned blocks;  ///< of each end
  unsigned capacity_log2;
  unsigned segment_log2;
  std::uint32_t calls;
};

void rate_line(Bench& bench, const std::string& line, const char* name, unsigned words,
               unsigned items, const RemoteShape& shape, bool is_line, const Known& known) {
  const Ends ends(bench);
  const std::string full = ends.name + ", " + line;
  if (!bench.wants(full)) return;
  polypath_queue_options options = options_of(std::size_t{words} * 4, shape.capacity_log2,
                                              shape.segment_log2, POLYPATH_QUEUE_MPMC);
  options.layout = is_line ? POLYPATH_PROTOCOL_LL128 : POLYPATH_PROTOCOL_LL;
  std::unique_ptr<Connected> queue;
  try {
    queue = std::make_unique<Connected>(bench, options, 0, ends.are_two ? 1 : 0);
  } catch (const polypath::error& error) {
    if (error.status() != POLYPATH_NOT_SUPPORTED) throw;
    return bench.skipped(kRemote, full, error.what());
  }
  const unsigned threads = bench.sized(512U, 64U);
  QueueRun push{};
  push.view = queue->view<queue_view>(POLYPATH_QUEUE_PRODUCER);
  push.producers = shape.blocks;
  push.calls = shape.calls;
  QueueRun pop{};
  pop.view = queue->view<queue_view>(POLYPATH_QUEUE_CONSUMER);
  pop.pop_calls = shape.calls;
  pop.tally = static_cast<Tally*>(ends.to.alloc(sizeof(Tally)));
  CUfunc_st* const pushes = ends.from.kernel(remote_bench_image(), name);
  CUfunc_st* const pops = ends.to.kernel(remote_bench_image(), name);
  const std::uint64_t all = std::uint64_t{shape.blocks} * threads * items * shape.calls;
  std::uint64_t runs = 0;
  const double us = bench.median_us(
      full,
      [&] {
        ++runs;
        return ends.to.time_us([&] {
          ends.to.launch(pops, shape.blocks, threads, pop);
          ends.from.launch(pushes, shape.blocks, threads, push, 1);
        });
      },
      [&] { return turns_taken(ends.from, push.view.tail, ends.to, pop.view.head); });
  expect_each(ends.to.read<Tally>(pop.tally, 1)[0], all, runs, full);
  bench.checked(all * runs);
  ends.to.free_all();
  if (ends.are_two)
    bench.figure(kRemote, full, static_cast<double>(all) / us * 1e-3, "G items/s", known,
                 {"remote_stores", "remote_fetch_adds"});
  else
    bench.figure(kRemote, full, static_cast<double>(all) / us * 1e-3, "G items/s", {},
                 {"fetch_adds", "l2_read"});
}

void remote_trip_line(Bench& bench, const std::string& line, const char* name, bool by_pair) {
  const Ends ends(bench);
  const std::string full = ends.name + ", " + line;
  if (!bench.wants(full)) return;
  const int other = ends.are_two ? 1 : 0;
  const auto options = options_of(12, 10, 5, by_pair ? POLYPATH_QUEUE_SPSC : POLYPATH_QUEUE_MPMC);
  const Connected there(bench, options, 0, other);
  const Connected back(bench, options, other, 0);
  std::array<SideOfTrips, 2> sides{};
  for (const unsigned side : {0U, 1U}) {
    const Connected& to = side == 0 ? there : back;
    const Connected& from = side == 0 ? back : there;
    if (by_pair) {
      sides[side].pair_to = to.view<spsc_view>(POLYPATH_QUEUE_PRODUCER);
      sides[side].pair_from = from.view<spsc_view>(POLYPATH_QUEUE_CONSUMER);
    } else {
      sides[side].queue_to = to.view<queue_view>(POLYPATH_QUEUE_PRODUCER);
      sides[side].queue_from = from.view<queue_view>(POLYPATH_QUEUE_CONSUMER);
    }
    sides[side].begins = side == 0 ? 1 : 0;
    sides[side].rounds = bench.sized(5000U, 30U);
    sides[side].tally = static_cast<Tally*>((side == 0 ? ends.from : ends.to).alloc(sizeof(Tally)));
  }
  CUfunc_st* const begins = ends.from.kernel(remote_bench_image(), name);
  CUfunc_st* const answers = ends.to.kernel(remote_bench_image(), name);
  std::uint64_t runs = 0;
  const double us = bench.median_us(full, [&] {
    ++runs;
    return ends.from.time_us([&] {
      ends.to.launch(answers, 1, 32, sides[1], 1);
      ends.from.launch(begins, 1, 32, sides[0]);
    });
  });
  ends.to.synchronize();
  for (const unsigned side : {0U, 1U})
    expect_each((side == 0 ? ends.from : ends.to).read<Tally>(sides[side].tally, 1)[0],
                sides[0].rounds, runs, full);
  ends.from.free_all();
  if (ends.are_two) ends.to.free_all();
  bench.figure(kRemote, full, us / sides[0].rounds / 2, "us");
}

// ---- with the CPU ----

void host_trip_line(Bench& bench) {
  const std::string line = "GPU to CPU and back, 16 B";
  if (!bench.wants(line)) return;
  Gpu& gpu = bench.gpu(0);
  HostTrips trips(bench, bench.sized(20'000U, 50U));
  const double us = bench.median_us(line, [&] {
    return gpu.time_us([&] {
      trips.launch();
      for (std::uint32_t round = 0; round < trips.rounds(); ++round) {
        trips.pop(round, line);
        trips.push();
      }
    });
  });
  trips.check_all(line);
  gpu.free_all();
  bench.figure(kRemote, line, us / trips.rounds(), "us");
}

/// `threads` CPU threads, each with a pair of its own with one block.
void host_rate_line(Bench& bench, const std::string& line, polypath_queue_side host, unsigned pairs,
                    unsigned threads, const Known& known) {
  if (!bench.wants(line)) return;
  Gpu& gpu = bench.gpu(0);
  const bool gpu_pushes = host == POLYPATH_QUEUE_CONSUMER;
  const HostPairs memory(bench, host, static_cast<int>(pairs), 16, 12);
  const std::uint32_t calls = bench.sized(100'000U / threads * 32, 10U);
  const std::uint64_t all = std::uint64_t{calls} * threads * 4;
  auto* const tally = static_cast<Tally*>(gpu.alloc(sizeof(Tally)));
  CUfunc_st* const kernel =
      gpu.kernel(remote_bench_image(),
                 gpu_pushes ? "polypath_bench_host_pair_push" : "polypath_bench_host_pair_pop");
  const auto on_cpu = [&](unsigned index) {
    constexpr std::size_t kBatch = 256;
    std::array<Words, kBatch> items{};
    if (gpu_pushes) {
      polypath::messaging::host_spsc_consumer<Words> pops(
          memory.view(static_cast<int>(index), POLYPATH_QUEUE_CONSUMER));
      bool all_right = true;
      for (std::uint64_t id = 0; id < all;) {
        const std::size_t count = std::min<std::uint64_t>(kBatch, all - id);
        expect_done(pops.pop(items.data(), count));
        for (std::size_t i = 0; i < count; ++i, ++id) all_right &= is_item(items[i], id);
      }
      expect(all_right, line + ": a wrong item");
    } else {
      polypath::messaging::host_spsc_producer<Words> pushes(
          memory.view(static_cast<int>(index), POLYPATH_QUEUE_PRODUCER));
      for (std::uint64_t id = 0; id < all;) {
        const std::size_t count = std::min<std::uint64_t>(kBatch, all - id);
        for (std::size_t i = 0; i < count; ++i) items[i] = make_words(id++);
        expect_done(pushes.push(items.data(), count));
      }
    }
  };
  std::uint64_t runs = 0;
  const double us = bench.median_us(line, [&] {
    ++runs;
    gpu.synchronize();
    const auto begin = std::chrono::steady_clock::now();
    for (unsigned i = 0; i < pairs; ++i) {
      const spsc_view view = memory.view(
          static_cast<int>(i), gpu_pushes ? POLYPATH_QUEUE_PRODUCER : POLYPATH_QUEUE_CONSUMER);
      gpu.launch(kernel, 1, threads, HostPairRun{view, 0, calls, tally}, i);
    }
    std::vector<std::jthread> others;
    std::vector<std::exception_ptr> thrown(pairs);
    for (unsigned i = 1; i < pairs; ++i)
      others.emplace_back([&, i] {
        try {
          on_cpu(i);
        } catch (...) {
          thrown[i] = std::current_exception();
        }
      });
    on_cpu(0);
    others.clear();
    gpu.synchronize();
    for (const std::exception_ptr& exception : thrown)
      if (exception) std::rethrow_exception(exception);
    return us_since(begin);
  });
  if (!gpu_pushes) expect_each(gpu.read<Tally>(tally, 1)[0], all, runs * pairs, line);
  bench.checked(all * runs * pairs);
  gpu.free_all();
  bench.figure(kRemote, line, static_cast<double>(all) * pairs / us, "M items/s", known);
}

}  // namespace

void remote_lines(Bench& bench) {
  const bool are_two = bench.gpus() > 1;
  const unsigned processors = bench.gpu(0).processors();
  const unsigned blocks = bench.sized(are_two ? processors : processors / 2, 2U);
  const auto many = [&](unsigned capacity_log2, unsigned segment_log2, std::uint32_t calls) {
    return bench.quick() ? RemoteShape{blocks, 10, 7, 5}
                         : RemoteShape{blocks, capacity_log2, segment_log2, calls};
  };
  const RemoteShape shape = bench.quick() ? RemoteShape{1, 10, 7, 5} : RemoteShape{1, 16, 10, 2000};
  rate_line(bench, "many to many, 16 B, 32 a turn", "polypath_bench_remote_3_1", 3, 1,
            many(18, 12, 3000), false, {0.003});
  rate_line(bench, "many to many, 16 B, 128 a turn", "polypath_bench_remote_3_4", 3, 4,
            many(20, 14, 1000), false, {0.003});
  // A ring that does not fit in half of the consumer's L2 goes through its memory.
  rate_line(bench, "many to many, 128 B cells, packets", "polypath_bench_remote_24_1", 24, 1,
            many(16, 10, 1000), false, {});
  rate_line(bench, "many to many, 128 B cells, line", "polypath_bench_remote_line", 30, 1,
            many(16, 10, 1000), true, {});
  for (const unsigned log2 : {14U, 15U, 18U})
    rate_line(bench, "many to many, 128 B cells, packets, ring of 2^" + std::to_string(log2),
              "polypath_bench_remote_24_1", 24, 1, many(log2, log2 - 6, 1000), false, {});
  rate_line(bench, "one block to one block, 16 B", "polypath_bench_remote_3_1", 3, 1, shape, false,
            {});
  remote_trip_line(bench, "one item, one way: pair", "polypath_bench_remote_pair_trips", true);
  remote_trip_line(bench, "one item, one way: queue", "polypath_bench_remote_queue_trips", false);
  host_trip_line(bench);
  host_rate_line(bench, "to one CPU thread, 16 B, one warp", POLYPATH_QUEUE_CONSUMER, 1, 32, {});
  host_rate_line(bench, "to one CPU thread, 16 B, one block", POLYPATH_QUEUE_CONSUMER, 1,
                 bench.sized(256U, 64U), {});
  host_rate_line(bench, "to four CPU threads, 16 B, four pairs", POLYPATH_QUEUE_CONSUMER,
                 bench.sized(4U, 2U), 32, {0, true});
  host_rate_line(bench, "from one CPU thread, 16 B", POLYPATH_QUEUE_PRODUCER, 1,
                 bench.sized(512U, 64U), {});
}

}  // namespace messaging_bench
