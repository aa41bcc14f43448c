// Ranks that communicate, one GPU each: processes of one machine, threads of one process, or both.
// What collectives, and all that runs on several GPUs, stand on: symmetric memory, signals,
// barriers, and one word that ends every wait when a rank cannot go on.
//
//   exchange -> Communicator    all ranks succeed, or all throw the same reason
//   alloc, free, exchange, split   host calls, collective: all ranks, in the same order
//   put, signal, wait_signal, barrier   on a stream, asynchronous
//   abort                       any thread: every wait of every rank ends with an error
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "comm/host_all_gather.hpp"
#include "comm/shared_host_memory.hpp"
#include "comm/symmetric_memory.hpp"
#include "comm/wait_error.hpp"
#include "comm/wait_registry.hpp"
#include "driver/cuda_driver.hpp"
#include "polypath/types.h"
#include "topology/node.hpp"

namespace polypath {

class CallLevels;
class CopyEngine;
class DeferredMemory;
class Devices;
class PrimaryContext;
class RelayMemory;
struct ExchangeArgs;

struct CommunicatorOptions {
  int rank = 0;
  int size = 1;
  int gpu = 0;             ///< of this rank, as the node numbers them
  HostAllGather exchange;  ///< not kept
  /// How long a rank waits for another one, at first; rank 0's value counts.
  std::chrono::milliseconds time_limit{30'000};
  /// Begins each reason that is thrown; of several nodes, which one it is.
  std::string where = {};
  /// The order of its collectives' sums; the same on all ranks.
  polypath_sum_order sum_order = POLYPATH_SUM_ORDER_RANK;
  /// Carries large puts over all paths; null: the driver copies. Must outlive the communicator.
  CopyEngine* engine = nullptr;
  /// A kernel makes puts of up to this size; 0: none.
  std::uint64_t put_kernel_max_bytes = 4 * 1024 * 1024;
};

/// What a put copies: from `src`, memory of any kind that this rank's GPU reaches, to `offset` in
/// `memory` of rank `to`.
struct Put {
  int to = 0;
  const SymmetricMemory& memory;
  std::uint64_t offset = 0;
  CUdeviceptr src = 0;
  std::uint64_t bytes = 0;
};

/// A 64-bit word at `offset` in symmetric memory, a multiple of 8, and a value for it. Values are
/// to grow, by less than 2^63.
struct Signal {
  const SymmetricMemory& memory;
  std::uint64_t offset = 0;
  std::uint64_t value = 0;
};

/// Words of one memory that are told to other ranks, and those of this rank that are waited for
/// then, all by one kernel.
struct SignalSet {
  struct Word {
    int rank = 0;  ///< the rank that is signalled; unused in `awaited`
    std::uint64_t offset = 0;
    std::uint64_t value = 0;
  };
  const SymmetricMemory& memory;
  std::span<const Word> signals;  ///< at most kMaxSignals
  std::span<const Word> awaited;  ///< any number
  /// Where this rank counts epochs, in the same memory: values are of the epoch at the time when
  /// the stream comes there (stream_wait_args.h), so that a graph has others at each launch.
  std::optional<std::uint64_t> epoch_offset = {};
  bool begins_epoch = false;
};

struct PutWithSignal {
  Put put;
  std::optional<Signal> then;
};

/// How puts went.
struct PutCounts {
  std::uint64_t by_kernel = 0;
  std::uint64_t by_copies = 0;
};

/// One a rank. Calls of one rank come from one thread at a time, but for abort(), aborted() and
/// check(), which any thread may make at any time. Throws InvalidArgument for what is wrong with an
/// argument, and changes nothing then; CommunicatorError for what went wrong among the ranks.
class Communicator {
 public:
  /// Collective. Makes the primary context of the GPU if need be. `node` must outlive it.
  Communicator(std::shared_ptr<const CudaDriver> driver, const Node& node,
               const CommunicatorOptions& options);
  /// Not collective: ranks may be destroyed one after another by one thread. Work that uses it must
  /// have completed; if this rank still waits for a signal on a stream, the communicator is
  /// aborted. With the last rank of this process waits until other processes' have left, too, for
  /// the time limit, so that no rank accesses freed memory.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  [[nodiscard]] int rank() const noexcept;
  [[nodiscard]] int size() const noexcept;
  [[nodiscard]] int gpu() const noexcept { return gpu_of(rank()); }
  /// The GPU of another rank, as this process numbers them.
  [[nodiscard]] int gpu_of(int rank) const;
  /// Whether both are ranks of the same one, and of this process.
  [[nodiscard]] bool is_same_communicator(const Communicator& other) const noexcept;
  /// Whether the rank is of this process.
  [[nodiscard]] bool is_here(int rank) const;
  [[nodiscard]] const Node& node() const noexcept;
  [[nodiscard]] const CudaDriver& driver() const noexcept;
  /// The primary context of this rank's GPU.
  [[nodiscard]] CUcontext context() const noexcept;
  [[nodiscard]] const std::shared_ptr<const PrimaryContext>& primary_context() const noexcept;

  /// Whether all GPUs address each other's memory: the same on all ranks. If not, kernels of
  /// several ranks meet in host memory.
  [[nodiscard]] bool has_peer_access() const noexcept;

  /// Collective; zeroed; the same size on all ranks. When memory is short on one rank all throw,
  /// and the communicator stays usable.
  SymmetricMemory alloc(std::uint64_t bytes, SymmetricUse use = SymmetricUse::transfers);
  /// As SymmetricHeap::defer().
  DeferredMemory& defer(std::uint64_t bytes);
  /// As SymmetricHeap::reserve_relays().
  RelayMemory* reserve_relays(Devices& devices, std::vector<int> gpus, std::uint64_t bytes,
                              std::size_t pinned_bytes);
  /// Collective. Work of all ranks that uses the memory must have completed.
  void free(SymmetricMemory&& memory);
  /// Throws InvalidArgument unless the memory is of this communicator; `what` names it.
  void require_own(const SymmetricMemory& memory, const char* what) const;

  /// Where each rank's GPU addresses these bytes of this rank's symmetric memory, by rank. Nothing:
  /// they are not of one allocation whose memory other ranks may write.
  [[nodiscard]] std::optional<std::vector<CUdeviceptr>> peer_addresses(CUdeviceptr address,
                                                                       std::uint64_t bytes) const;

  /// Collective: pinned host memory that all ranks share, `bytes` in each host memory of the node;
  /// zeroed. When memory is short on one rank all throw, and the communicator stays usable. It may
  /// outlive the communicator.
  std::shared_ptr<const SharedHostMemory> alloc_host(std::uint64_t bytes);

  /// Collective: an all-gather on the host, as Exchange, with time limit and abort.
  void exchange(std::span<const std::byte> local, std::span<std::byte> all);
  /// Collective: returns when all ranks have come, and no stream of any of them waits for a signal
  /// any more; or, when one does for seconds, all the same.
  void barrier_when_idle();
  /// Collective: one communicator for the ranks of each color, ordered by key, then by rank; null
  /// for a negative color.
  std::unique_ptr<Communicator> split(int color, int key);

  // On a stream of this rank's GPU: asynchronous, in the order of the stream.

  /// Copies into the memory of another rank, or of this one.
  void put(const Put& put, CUstream stream);
  /// put(), and then sets the signal: a rank that sees its value sees the bytes.
  void put(const Put& put, const Signal& signal, CUstream stream);
  /// Puts that are planned together: those to one rank in this order, those to several at once, on
  /// streams that fork from `stream` and join it. After each its signal; after all the stream
  /// waits for the words of `awaited`, as wait_signal.
  void put_group(std::span<const PutWithSignal> puts, std::span<const Signal> awaited,
                 CUstream stream);
  /// Gives a word of rank `to` the signal's value, after all that is on the stream before.
  void signal(int to, const Signal& signal, CUstream stream);
  /// Lets the stream wait until the word in this rank's own memory is the signal's value or past
  /// it. It waits in a kernel of one block (docs/communicators.md says how many may), which goes on
  /// after an abort; past the time limit it aborts. In capture the graph has the time limit of now.
  void wait_signal(const Signal& signal, CUstream stream);
  /// Tells and waits as `set` says; in capture too, as wait_signal.
  void signal_and_wait(const SignalSet& set, CUstream stream);
  /// wait_signal() for a word in pinned host memory, which counts exchanges with other nodes. The
  /// counting thread must abort at the time limit: the stream itself times out after twice as long.
  void wait_network(const std::uint64_t* word, std::uint64_t count, CUstream stream);
  /// Before and after an exchange between nodes: the kernels of exchange_args.h, whose patience
  /// this fills in. `number`: of the call, for what the status record says.
  void begin_exchange(ExchangeArgs args, CUstream stream);
  void end_exchange(ExchangeArgs args, std::uint32_t number, CUstream stream);
  /// Lets the stream wait until the streams of all ranks have come to their call. Each rank calls
  /// equally often; a launch of a graph counts as the barriers that were captured. The caller
  /// orders barriers that are on several streams. Calls are counted on the GPU, so that one rank
  /// may capture what another one does not.
  void barrier(CUstream stream);

  /// Counts of put and put_group; puts of no bytes do not count.
  [[nodiscard]] PutCounts put_counts() const noexcept;

  /// Whether a stream waits for a signal or at a barrier.
  [[nodiscard]] bool streams_wait() const;

  /// How long this rank waits for another.
  [[nodiscard]] std::chrono::milliseconds time_limit() const noexcept;
  /// Applies to later calls; other ranks keep theirs.
  void set_time_limit(std::chrono::milliseconds limit);

  /// Makes the communicator unusable, for all ranks, and ends all waits. The first reason is kept.
  void abort(std::string_view reason) noexcept;
  [[nodiscard]] bool aborted() const noexcept;
  /// This rank begins a call that all ranks take part in. One that has left is an error only for
  /// calls that it has not taken part in. Throws CommunicatorError for those.
  void begin_call();
  /// Levels of plans, for one row of calls that all ranks make: begin_call() comes before.
  [[nodiscard]] CallLevels& levels();
  /// `in_flight`, null again before it goes: whether a call is under way that was begun so. By any
  /// thread.
  void set_calls_in_flight(std::function<bool()> in_flight);
  /// Kernels wait for other ranks from now on without begin_call(): a rank that has left is an
  /// error for all ranks that may wait.
  void note_uncounted_waits() noexcept;
  /// Whether the GPU of this rank was reset since: nothing but abandon() is left to do.
  [[nodiscard]] bool is_lost() const noexcept;
  /// This rank leaves without waiting. What it has on the GPU stays, or went with a reset; no
  /// call is made but the destructor's.
  void abandon() noexcept;

  /// Throws CommunicatorError with the reason once it is unusable. If it is usable after a stream
  /// was synchronised, no wait on that stream timed out.
  void check() const;

  /// For a kernel of this rank that waits for others. When its status record is found to be set,
  /// the communicator is aborted with what it says.
  [[nodiscard]] wait_context wait_ctx() const noexcept;
  /// The same for a kernel of the program, of which thousands of threads may wait at once.
  [[nodiscard]] wait_context program_wait_context() const noexcept;
  /// Numbers for what such kernels wait at, and how to say so, as WaitRegistry::add and remove.
  /// Thread-safe.
  std::uint32_t register_waits(std::uint32_t count, WaitRegistry::Describe describe);
  void unregister_waits(std::uint32_t first);
  /// What they say of a record; empty when it is of none of them.
  [[nodiscard]] std::string describe_wait(const wait_error& status) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace polypath
