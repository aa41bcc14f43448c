// Matching by relaxed rules: without a source wildcard, and without order. By the C API, as a
// program calls it; every run is compared with the host's results, or checked key by key.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "groups.hpp"
#include "polypath/comm.hpp"
#include "polypath/messaging/matching.h"

namespace messaging_bench {
namespace {

using polypath::detail::check;

constexpr const char* kRelaxed = "match";
constexpr const char* kRelaxedRate = "G matches/s";

/// Queues one after the other; each has as many messages as receives.
struct Traffic {
  std::uint32_t queues;
  std::uint32_t of_queue;
  std::vector<polypath_envelope> messages;
  std::vector<polypath_envelope> receives;

  [[nodiscard]] std::size_t all() const { return messages.size(); }
};

template <typename Values>
void shuffle(Values first, Values last, std::mt19937_64& random) {
  for (auto count = static_cast<std::uint64_t>(last - first); count > 1; --count)
    std::swap(first[static_cast<std::ptrdiff_t>(count - 1)],
              first[static_cast<std::ptrdiff_t>(random() % count)]);
}

/// Each queue is of one source. Its receives ask for what its messages are, in another order.
Traffic partitions(std::uint32_t queues, std::uint32_t of_queue, unsigned any_tag_percent) {
  std::mt19937_64 random(1);
  Traffic traffic{queues, of_queue, {}, {}};
  for (std::uint32_t q = 0; q < queues; ++q) {
    const auto source = static_cast<std::uint16_t>(q);
    for (std::uint32_t i = 0; i < of_queue; ++i)
      traffic.messages.push_back(
          {static_cast<std::uint32_t>(random() % (2 * of_queue)), source, 0});
    traffic.receives.insert(traffic.receives.end(), traffic.messages.end() - of_queue,
                            traffic.messages.end());
    shuffle(traffic.receives.end() - of_queue, traffic.receives.end(), random);
    for (auto at = traffic.receives.end() - of_queue; at != traffic.receives.end(); ++at)
      if (random() % 100 < any_tag_percent) at->tag = POLYPATH_ANY_TAG;
  }
  return traffic;
}

/// Each key comes `times` times on both sides.
Traffic keys(std::uint32_t queues, std::uint32_t of_queue, std::uint32_t times) {
  std::mt19937_64 random(2);
  Traffic traffic{queues, of_queue, {}, {}};
  traffic.messages.reserve(std::size_t{queues} * of_queue);
  for (std::uint32_t q = 0; q < queues; ++q) {
    for (std::uint32_t i = 0; i < of_queue; ++i) {
      const std::uint32_t key = i / times;
      traffic.messages.push_back({key / 16, static_cast<std::uint16_t>(key % 16), 1});
    }
    shuffle(traffic.messages.end() - of_queue, traffic.messages.end(), random);
    traffic.receives.insert(traffic.receives.end(), traffic.messages.end() - of_queue,
                            traffic.messages.end());
    shuffle(traffic.receives.end() - of_queue, traffic.receives.end(), random);
  }
  return traffic;
}

/// A matcher with its arrays on GPU 0.
class Run {
 public:
  Run(Bench& bench, polypath_match_order order, const Traffic& traffic, bool as_one)
      : gpu_(bench.gpu(0)), of_(traffic), as_one_(as_one) {
    const auto capacity =
        static_cast<std::uint32_t>(as_one ? traffic.all() : std::size_t{traffic.of_queue});
    const polypath_matcher_options options{order, capacity, 0, {}};
    check(polypath_matcher_create(bench.comm(0), &options, &matcher_));
    messages_ = put(traffic.messages);
    receives_ = put(traffic.receives);
    std::vector<std::uint32_t> begins;
    for (std::uint32_t q = 0; q <= traffic.queues; ++q) begins.push_back(q * traffic.of_queue);
    begins_ = put(begins);
    results_ = static_cast<std::uint32_t*>(gpu_.alloc(traffic.all() * sizeof(std::uint32_t)));
    outcomes_ = static_cast<polypath_match_result*>(
        gpu_.alloc(std::size_t{traffic.queues} * sizeof(polypath_match_result)));
  }
  ~Run() {
    polypath_matcher_destroy(matcher_);
    gpu_.free_all();
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  /// Microseconds per batch, of `times` batches one after another.
  double time_us(unsigned times) {
    gpu_.set(results_, 0xAB, of_.all() * sizeof(std::uint32_t));
    const double us = gpu_.time_us([&] {
      for (unsigned i = 0; i < times; ++i)
        if (as_one_)
          check(polypath_match(matcher_, messages_, of_.all(), receives_, of_.all(), results_,
                               outcomes_, gpu_.stream()));
        else
          check(polypath_match_batched(matcher_, of_.queues, messages_, begins_, receives_, begins_,
                                       results_, outcomes_, gpu_.stream()));
    });
    return us / times;
  }
  /// Throws where an outcome is not that all were matched.
  std::vector<std::uint32_t> results(const std::string& line, std::uint32_t of_each) {
    const std::size_t count = as_one_ ? 1 : of_.queues;
    for (const auto& outcome : gpu_.read<polypath_match_result>(outcomes_, count)) {
      expect(outcome.status == POLYPATH_MATCH_DONE, line + ": refused");
      if (of_each != 0) expect(outcome.matches == of_each, line + ": not all that can be matched");
    }
    return gpu_.read<std::uint32_t>(results_, of_.all());
  }

 private:
  template <typename T>
  T* put(const std::vector<T>& values) {
    auto* const at = static_cast<T*>(gpu_.alloc(values.size() * sizeof(T)));
    gpu_.write(at, values.data(), values.size() * sizeof(T));
    return at;
  }

  Gpu& gpu_;
  const Traffic& of_;
  bool as_one_;
  polypath_matcher* matcher_ = nullptr;
  const polypath_envelope* messages_;
  const polypath_envelope* receives_;
  const std::uint32_t* begins_;
  std::uint32_t* results_;
  polypath_match_result* outcomes_;
};

/// What the host makes of each queue, or of all as one.
std::vector<std::uint32_t> on_host(const Traffic& traffic, bool as_one) {
  std::vector<std::uint32_t> results(traffic.all());
  const std::size_t step = as_one ? traffic.all() : std::size_t{traffic.of_queue};
  for (std::size_t at = 0; at < traffic.all(); at += step)
    check(polypath_match_host(POLYPATH_ORDER_NO_ANY_SOURCE, traffic.messages.data() + at, step,
                              traffic.receives.data() + at, step, results.data() + at, nullptr));
  return results;
}

using MakeTraffic = std::function<Traffic()>;

void ordered_line(Bench& bench, const std::string& line, const MakeTraffic& make, bool as_one,
                  const Known& known) {
  if (!bench.wants(line)) return;
  const Traffic traffic = make();
  const std::vector<std::uint32_t> expected = on_host(traffic, as_one);
  const auto matches = static_cast<double>(traffic.all()) -
                       static_cast<double>(std::ranges::count(expected, POLYPATH_NO_MATCH));
  Run run(bench, POLYPATH_ORDER_NO_ANY_SOURCE, traffic, as_one);
  const double us = bench.median_us(line, [&] {
    const double time = run.time_us(bench.sized(10U, 1U));
    expect(run.results(line, 0) == expected, line + ": not the host's results");
    return time;
  });
  bench.figure(kRelaxed, line, matches / us * 1e-3, kRelaxedRate, known, {"l2_read", "hbm_read"});
}

void hashed_line(Bench& bench, const std::string& line, const MakeTraffic& make,
                 polypath_match_order order, bool as_one, const Known& known) {
  if (!bench.wants(line)) return;
  const Traffic traffic = make();
  Run run(bench, order, traffic, as_one);
  const std::uint32_t step = as_one ? static_cast<std::uint32_t>(traffic.all()) : traffic.of_queue;
  std::vector<char> taken(traffic.all());
  // Some milliseconds, for any size.
  const unsigned times = bench.sized(1U + (1U << 26) / static_cast<unsigned>(traffic.all()), 1U);
  const double us = bench.median_us(line, [&] {
    const double time = run.time_us(times);
    const std::vector<std::uint32_t> results = run.results(line, step);
    std::ranges::fill(taken, 0);
    for (std::size_t i = 0; i < traffic.all(); ++i) {
      const std::size_t first = i / step * step;
      expect(results[i] < step, line + ": a receive without a message");
      const std::size_t message = first + results[i];
      expect(taken[message] == 0, line + ": a message twice");
      taken[message] = 1;
      const polypath_envelope& a = traffic.messages[message];
      const polypath_envelope& b = traffic.receives[i];
      expect(a.tag == b.tag && a.source == b.source && a.communicator == b.communicator,
             line + ": a message of another key");
    }
    return time;
  });
  bench.figure(kRelaxed, line, static_cast<double>(traffic.all()) / us * 1e-3, kRelaxedRate, known,
               {"l2_read", "hbm_read"});
}

/// Next to the line of unique keys that of counted ones, each four times, and of one key.
void hashed_lines(Bench& bench, const std::string& what, std::uint32_t queues,
                  std::uint32_t of_queue, bool as_one, const Known& known) {
  const Known counted{0, known.adds_up};
  const auto each = [&](std::uint32_t times) {
    return [=] { return keys(queues, of_queue, times); };
  };
  hashed_line(bench, "hashed: " + what + " unique keys", each(1), POLYPATH_ORDER_UNORDERED_UNIQUE,
              as_one, known);
  hashed_line(bench, "hashed: " + what + " counted keys, all different", each(1),
              POLYPATH_ORDER_UNORDERED, as_one, counted);
  hashed_line(bench, "hashed: " + what + " counted keys, 4 of each", each(4),
              POLYPATH_ORDER_UNORDERED, as_one, counted);
  hashed_line(bench, "hashed: " + what + " of one key", each(of_queue), POLYPATH_ORDER_UNORDERED,
              as_one, counted);
}

}  // namespace

void relaxed_lines(Bench& bench) {
  const std::uint32_t sources = bench.sized(16384U, 20U);
  const std::string partitions_of_64 = "16384 partitions of 64";
  ordered_line(bench, "no source wildcard: " + partitions_of_64,
               [=] { return partitions(sources, 64, 0); }, false, {0.06, true});
  ordered_line(bench, "no source wildcard: " + partitions_of_64 + ", 10 % any tag",
               [=] { return partitions(sources, 64, 10); }, false, {0, true});
  const auto mixed = [=] {
    Traffic traffic = partitions(sources, 64, 0);
    std::mt19937_64 random(3);
    shuffle(traffic.messages.begin(), traffic.messages.end(), random);
    shuffle(traffic.receives.begin(), traffic.receives.end(), random);
    return traffic;
  };
  ordered_line(bench, "no source wildcard: from one mixed stream", mixed, true, {0.06});

  const std::uint32_t tables = bench.sized(4096U, 3U);
  const std::uint32_t of_table = bench.sized(1024U, 100U);
  hashed_lines(bench, "4096 tables of 1024", tables, of_table, false, {0.5, true});
  struct Size {
    const char* name;
    std::uint32_t count;
    std::uint32_t quick;
  };
  for (const Size& size :
       {Size{"one table of 64 K", 1U << 16, 1100}, Size{"one table of 1 M", 1U << 20, 1500},
        Size{"one table of 16 M", 1U << 24, 2000}})
    hashed_lines(bench, size.name, 1, bench.sized(size.count, size.quick), true, {0.5});
}

}  // namespace messaging_bench
