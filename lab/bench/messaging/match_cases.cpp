// Matching in batches, by the C API: every result is compared with that of the host's matching.
//
// Batches one after another on a stream, launches and all, from event to event; of many queues
// too, a launch each time. Receives are the messages in another order; a given percentage of them
// has a wildcard, by turns for any source, any tag, and both.
#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "groups.hpp"
#include "polypath/messaging/matching.h"
#include "polypath/polypath.hpp"

namespace messaging_bench {
namespace {

using polypath::detail::check;

constexpr const char* kMatch = "match";
constexpr std::uint32_t kSources = 64;
constexpr std::uint32_t kTags = 16;

struct Batch {
  std::vector<polypath_envelope> messages;
  std::vector<polypath_envelope> receives;
  std::vector<std::uint32_t> begins;  ///< of queues; the same of messages and receives
  std::vector<std::uint32_t> expected;
  std::uint64_t matches = 0;
};

void add_queue(Batch& batch, std::uint32_t count, unsigned wildcards, std::mt19937& random) {
  const std::size_t begin = batch.messages.size();
  for (std::uint32_t i = 0; i < count; ++i)
    batch.messages.push_back({static_cast<std::uint32_t>(random() % kTags),
                              static_cast<std::uint16_t>(random() % kSources), 0});
  batch.receives.insert(batch.receives.end(),
                        batch.messages.begin() + static_cast<std::ptrdiff_t>(begin),
                        batch.messages.end());
  std::shuffle(batch.receives.begin() + static_cast<std::ptrdiff_t>(begin), batch.receives.end(),
               random);
  for (std::size_t i = begin; i < batch.receives.size(); ++i) {
    if (random() % 100 >= wildcards) continue;
    const std::size_t kind = random() % 3;
    if (kind != 1) batch.receives[i].source = POLYPATH_ANY_SOURCE;
    if (kind != 0) batch.receives[i].tag = POLYPATH_ANY_TAG;
  }
  batch.begins.push_back(static_cast<std::uint32_t>(begin));
  batch.expected.resize(batch.receives.size());
  polypath_match_result outcome{};
  check(polypath_match_host(POLYPATH_ORDER_MPI, batch.messages.data() + begin, count,
                            batch.receives.data() + begin, count, batch.expected.data() + begin,
                            &outcome));
  batch.matches += outcome.matches;
}

Batch make_batch(std::uint32_t queues, std::uint32_t count, unsigned wildcards) {
  std::mt19937 random(queues + count * 3 + wildcards);
  Batch batch;
  for (std::uint32_t queue = 0; queue < queues; ++queue) add_queue(batch, count, wildcards, random);
  batch.begins.push_back(static_cast<std::uint32_t>(batch.messages.size()));
  return batch;
}

template <typename T>
T* on_gpu(Gpu& gpu, const std::vector<T>& values) {
  void* const memory = gpu.alloc(values.size() * sizeof(T));
  gpu.write(memory, values.data(), values.size() * sizeof(T));
  return static_cast<T*>(memory);
}

/// Millions of pairs a second; `repetitions` of one launch or row of launches.
void match_line(Bench& bench, const std::string& line, std::uint32_t queues, std::uint32_t count,
                unsigned wildcards, unsigned repetitions, const Known& known) {
  if (!bench.wants(line)) return;
  Gpu& gpu = bench.gpu(0);
  const Batch batch = make_batch(queues, count, wildcards);
  const polypath_matcher_options options{POLYPATH_ORDER_MPI, count, 0, {}};
  polypath_matcher* matcher = nullptr;
  check(polypath_matcher_create(bench.comm(0), &options, &matcher));
  const polypath_envelope* const messages = on_gpu(gpu, batch.messages);
  const polypath_envelope* const receives = on_gpu(gpu, batch.receives);
  const std::uint32_t* const begins = on_gpu(gpu, batch.begins);
  const std::size_t result_bytes = batch.expected.size() * sizeof(std::uint32_t);
  auto* const results = static_cast<std::uint32_t*>(gpu.alloc(result_bytes));
  gpu.set(results, 0xEE, result_bytes);
  const double us = bench.median_us(line, [&] {
    return gpu.time_us([&] {
      for (unsigned i = 0; i < repetitions; ++i)
        check(queues == 1 ? polypath_match(matcher, messages, count, receives, count, results,
                                           nullptr, gpu.stream())
                          : polypath_match_batched(matcher, queues, messages, begins, receives,
                                                   begins, results, nullptr, gpu.stream()));
    });
  });
  const bool is_right = gpu.read<std::uint32_t>(results, batch.expected.size()) == batch.expected;
  check(polypath_matcher_destroy(matcher));
  gpu.free_all();
  expect(is_right, line + ": not the host's result");
  bench.figure(kMatch, line, static_cast<double>(batch.matches) * repetitions / us, "M matches/s",
               known, {"l2_read"});
}

std::string with_wildcards(const std::string& line, unsigned wildcards) {
  return line +
         (wildcards == 0 ? ", no wildcard" : ", " + std::to_string(wildcards) + " % wildcards");
}

}  // namespace

void match_lines(Bench& bench) {
  const unsigned times = bench.sized(100U, 2U);
  for (const unsigned wildcards : {0U, 1U, 10U}) {
    const std::string prefix = "matching, MPI order, one queue of ";
    match_line(bench, with_wildcards(prefix + "64", wildcards), 1, 64, wildcards, times, {6});
    match_line(bench, with_wildcards(prefix + "1024", wildcards), 1, 1024, wildcards, times, {6});
    match_line(bench, with_wildcards(prefix + "16384", wildcards), 1, bench.sized(16384U, 2000U),
               wildcards, bench.sized(10U, 1U), {});
  }
  for (const unsigned wildcards : {0U, 10U})
    match_line(bench, with_wildcards("matching, MPI order, many queues of 1024", wildcards),
               bench.sized(8192U, 3U), 1024, wildcards, bench.sized(10U, 1U), {0, true});
  match_line(bench, "matching, MPI order, one queue of 64 K by the whole GPU, no wildcard", 1,
             bench.sized(1U << 16, 3000U), 0, bench.sized(10U, 1U), {});
  match_line(bench, "matching, MPI order, one queue of 1 M by the whole GPU, no wildcard", 1,
             bench.sized(1U << 20, 3000U), 0, bench.sized(5U, 1U), {});
}

}  // namespace messaging_bench
