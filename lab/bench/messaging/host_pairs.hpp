// Pairs between a GPU and the CPU, the CPU's items, and whether all came.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "bench.hpp"
#include "bench_images.hpp"
#include "polypath/messaging.h"
#include "polypath/messaging/host_spsc_queue.hpp"
#include "polypath/polypath.hpp"
#include "remote_bench.h"

namespace messaging_bench {

using polypath::detail::check;
using polypath::device::spsc_view;

inline polypath_queue_options options_of(std::size_t item_bytes, unsigned capacity_log2,
                                         unsigned segment_log2, polypath_queue_kind kind) {
  polypath_queue_options options{};
  options.item_bytes = item_bytes;
  options.capacity = std::uint32_t{1} << capacity_log2;
  options.segment = std::uint32_t{1} << segment_log2;
  options.kind = kind;
  return options;
}

/// Checks that `runs` runs gave items of these ids, once each and intact.
inline void expect_each(const Tally& tally, std::uint64_t items, std::uint64_t runs,
                        const std::string& line) {
  expect(tally.wrong == 0, line + ": " + std::to_string(tally.wrong) + " wrong items");
  expect(tally.items == items * runs, line + ": items lost or doubled");
  expect(tally.sum_of_ids == items * (items - 1) / 2 * runs, line + ": not these items");
}

struct Words {
  std::uint32_t words[3];
};

/// As items.cuh makes them.
inline bool is_item(const Words& item, std::uint64_t id) {
  const std::uint32_t mixed = static_cast<std::uint32_t>(id ^ id >> 32) * 0x9E3779B9U;
  return item.words[0] == static_cast<std::uint32_t>(id) &&
         item.words[1] == static_cast<std::uint32_t>(id >> 32) &&
         item.words[2] == (mixed ^ mixed >> 15) + 2 * 0x85EBCA6BU;
}
inline Words make_words(std::uint64_t id) {
  const std::uint32_t mixed = static_cast<std::uint32_t>(id ^ id >> 32) * 0x9E3779B9U;
  return {{static_cast<std::uint32_t>(id), static_cast<std::uint32_t>(id >> 32),
           (mixed ^ mixed >> 15) + 2 * 0x85EBCA6BU}};
}

/// Pairs between GPU 0 and the CPU.
class HostPairs {
 public:
  HostPairs(Bench& bench, polypath_queue_side host, int count, unsigned capacity_log2,
            unsigned segment_log2) {
    const auto options = options_of(12, capacity_log2, segment_log2, POLYPATH_QUEUE_SPSC);
    check(polypath_queue_create_host(bench.comm(0), &options, host, count, &queue_));
  }
  ~HostPairs() { polypath_queue_destroy(queue_); }
  HostPairs(const HostPairs&) = delete;
  HostPairs& operator=(const HostPairs&) = delete;

  [[nodiscard]] spsc_view view(int index, polypath_queue_side side) const {
    spsc_view view{};
    check(polypath_queue_view(queue_, index, side, &view, sizeof view));
    return view;
  }

 private:
  polypath_queue* queue_ = nullptr;
};

inline void expect_done(polypath::device::status status) {
  expect(status == polypath::device::status::done, "a wait of the CPU gave up");
}

inline double us_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
      .count();
}

/// Items of one block of GPU 0 to the CPU, each of which waits for the CPU to send it back.
class HostTrips {
 public:
  /// Round trips of `rounds` items per launch.
  HostTrips(Bench& bench, std::uint32_t rounds)
      : gpu_(bench.gpu(0)),
        there_(bench, POLYPATH_QUEUE_CONSUMER, 1, 10, 5),
        back_(bench, POLYPATH_QUEUE_PRODUCER, 1, 10, 5),
        kernel_(gpu_.kernel(remote_bench_image(), "polypath_bench_remote_pair_trips")),
        pops_(there_.view(0, POLYPATH_QUEUE_CONSUMER)),
        pushes_(back_.view(0, POLYPATH_QUEUE_PRODUCER)) {
    side_.pair_to = there_.view(0, POLYPATH_QUEUE_PRODUCER);
    side_.pair_from = back_.view(0, POLYPATH_QUEUE_CONSUMER);
    side_.begins = 1;
    side_.rounds = rounds;
    side_.tally = static_cast<Tally*>(gpu_.alloc(sizeof(Tally)));
  }

  [[nodiscard]] std::uint32_t rounds() const { return side_.rounds; }
  void launch() {
    ++launches_;
    gpu_.launch(kernel_, 1, 32, side_);
  }
  /// The item of that round comes to the CPU.
  void pop(std::uint32_t round, const std::string& line) {
    expect_done(pops_.pop(item_));
    expect(is_item(item_, round), line + ": a wrong item");
  }
  /// ... and goes back.
  void push() { expect_done(pushes_.push(item_)); }
  /// After all launches: all items came back to the GPU.
  void check_all(const std::string& line) {
    expect_each(gpu_.read<Tally>(side_.tally, 1)[0], side_.rounds, launches_, line);
  }

 private:
  Gpu& gpu_;
  HostPairs there_;
  HostPairs back_;
  SideOfTrips side_{};
  CUfunc_st* kernel_;
  polypath::messaging::host_spsc_consumer<Words> pops_;
  polypath::messaging::host_spsc_producer<Words> pushes_;
  Words item_{};
  std::uint64_t launches_ = 0;
};

}  // namespace messaging_bench
