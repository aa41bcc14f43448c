// What a context has done. Counts by reason and route are kept under a lock; the native fast path
// only adds to atomics.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "plan/transfer_schedule.hpp"

namespace polypath {

/// Why a transfer went as the native copy.
enum class NativeReason : std::uint8_t {
  small,          ///< below the smallest size that is ever split
  no_gain,        ///< the plan says so
  links_in_use,   ///< transfers at the same time, also of other processes, use what would help
  links_loaded,   ///< copies that no plan knows of occupy what would help
  threads_slow,   ///< threads that copy pageable memory were slower than the driver
  pageable,       ///< host memory that is not page-locked
  managed,        ///< managed memory
  capturing,      ///< the stream is in capture
  same_memory,    ///< within one GPU, or host to host
  other_context,  ///< the stream or an address is of a context that is not a GPU's primary one
  several_allocations,  ///< the range passes from one allocation into the next
  not_ready,            ///< staged routes are being prepared
  busy,                 ///< every channel or ring holds a transfer that has not started
  other_process,        ///< memory of a process that does not say on which GPU it lies
  unreachable,          ///< a pool or mapping that no staging GPU may reach
  context_reset,        ///< the program reset a primary context that routes were made in
  driver_error,         ///< a driver call failed before the first copy
  count_
};
std::string_view to_string(NativeReason reason) noexcept;

/// Why a route of a plan was left out of a transfer.
enum class ExclusionReason : std::uint8_t { not_ready, busy, failed, unreachable, loaded, count_ };
std::string_view to_string(ExclusionReason reason) noexcept;

class Counters {
 public:
  Counters() = default;

  void count_native(NativeReason reason, std::uint64_t bytes) noexcept;
  void count_left_out(ExclusionReason reason) noexcept;
  void count_failed() noexcept { ++failed_; }
  /// A transfer went without a route because others use its links.
  void count_changed_by_load() noexcept { ++changed_by_load_; }
  /// A run of `schedule` was issued; of its transfers those that are split count.
  /// `followed`: number of them that did not wait for earlier ones (exec/sequence.hpp).
  void count_split(const GroupSchedule& schedule, int followed);

  // Batches of small copies (batch_dispatcher.hpp); "blocks" are their copies.

  /// One that was issued.
  void count_batch() noexcept { ++batches_; }
  /// Entries that kernels of one GPU copy: what route `route` of the plan carries.
  void count_blocks(const TransferPlan& plan, std::size_t route, std::size_t entries);
  void count_large_blocks(std::size_t count) noexcept { large_blocks_ += count; }
  void count_native_block(NativeReason reason, std::uint64_t bytes) noexcept;
  /// The caller will copy them natively.
  void count_declined_blocks(NativeReason reason, std::size_t count, std::uint64_t bytes) noexcept;
  /// A transfer from or to pageable memory, or from a file, was carried by CPU threads: what each
  /// route took. `is_further_part`: an earlier part of it was counted as a transfer.
  void count_pageable(const TransferPlan& plan, const std::vector<std::uint64_t>& route_bytes,
                      const std::vector<std::uint64_t>& route_chunks, bool is_file,
                      bool is_further_part);

  // Spreads: the same bytes to several GPUs (spread_dispatcher.hpp).

  /// One was issued: `parts` are the bytes that each GPU fetched from `src` for all of `gpus`.
  void count_spread(MemoryId src, const std::vector<int>& gpus,
                    const std::map<int, std::uint64_t>& parts, bool is_pageable);
  /// One went as a copy for each GPU.
  void count_native_spread(NativeReason reason) noexcept;
  void reset();

  struct RouteCount {
    std::uint64_t transfers = 0;
    std::uint64_t bytes = 0;
  };
  struct RouteKey {
    MemoryId src;
    MemoryId dst;
    std::string route;
    friend auto operator<=>(const RouteKey&, const RouteKey&) = default;
  };
  struct LinkCount {
    std::uint64_t copies = 0;
    std::uint64_t bytes = 0;
  };
  /// A copy of all counts at one time.
  struct Snapshot {
    std::uint64_t split = 0;
    std::uint64_t followed = 0;  ///< of the split
    std::uint64_t pageable = 0;  ///< of the split: from or to pageable memory, by CPU threads
    std::uint64_t files = 0;     ///< of the split: from files, by CPU threads
    std::uint64_t failed = 0;
    std::uint64_t changed_by_load = 0;
    std::uint64_t bytes = 0;   ///< of all transfers
    std::uint64_t copies = 0;  ///< of split transfers
    std::array<std::uint64_t, static_cast<std::size_t>(NativeReason::count_)> native{};
    std::array<std::uint64_t, static_cast<std::size_t>(ExclusionReason::count_)> excluded{};
    std::map<RouteKey, RouteCount> routes;  ///< of split transfers
    std::map<int, LinkCount> links;         ///< by index; of split transfers
    struct Batches {
      std::uint64_t calls = 0;
      std::uint64_t large = 0;         ///< copies that went as transfers of their own
      std::uint64_t native = 0;        ///< copies
      std::uint64_t native_bytes = 0;  ///< those that were left to the caller among them
      std::map<RouteKey, RouteCount> routes = {};  ///< of kernels: entries of their tables
      std::array<std::uint64_t, static_cast<std::size_t>(NativeReason::count_)> native_by_reason{};
    } batches;
    struct Spreads {
      std::uint64_t calls = 0;     ///< the native ones included
      std::uint64_t native = 0;    ///< calls that went as a copy for each GPU
      std::uint64_t pageable = 0;  ///< of the others: CPU threads copied pageable memory
      std::map<RouteKey, RouteCount> routes = {};  ///< "direct", or via the GPU that sent it on
      std::array<std::uint64_t, static_cast<std::size_t>(NativeReason::count_)> native_by_reason{};
    } spreads;
  };
  [[nodiscard]] Snapshot snapshot() const;

 private:
  std::array<std::atomic<std::uint64_t>, static_cast<std::size_t>(NativeReason::count_)> native_{};
  std::array<std::atomic<std::uint64_t>, static_cast<std::size_t>(ExclusionReason::count_)>
      left_out_{};
  std::array<std::atomic<std::uint64_t>, static_cast<std::size_t>(NativeReason::count_)>
      native_blocks_{};
  std::array<std::atomic<std::uint64_t>, static_cast<std::size_t>(NativeReason::count_)>
      native_spreads_{};
  std::atomic<std::uint64_t> batches_{0};
  std::atomic<std::uint64_t> large_blocks_{0};
  std::atomic<std::uint64_t> native_block_bytes_{0};
  std::atomic<std::uint64_t> native_bytes_{0};
  std::atomic<std::uint64_t> failed_{0};
  std::atomic<std::uint64_t> changed_by_load_{0};
  /// By source, destination and route. snapshot() makes the names.
  using RouteCounts = std::map<std::tuple<MemoryId, MemoryId, RouteKind, MemoryId>, RouteCount>;
  RouteCount& count_of(const Request& request, const Route& route) {
    return routes_[{request.src, request.dst, route.kind, route.via}];
  }

  mutable std::mutex mutex_;
  Snapshot split_;      // without the routes of split transfers
  RouteCounts routes_;  // of split transfers
};

}  // namespace polypath
