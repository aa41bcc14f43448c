// Transfers between pageable host memory and a GPU: threads copy chunks between the program's
// memory and pinned slots, and each thread sends its chunks over one route. To a GPU, chunks may
// come from a file as well: the threads read it into the slots (docs/adr/0040-read-from-file.md).
//
//   prepare()  threads, slots, streams, staging memory, peer access      one thread at a time, slow
//   run()      waits until the caller's stream has come to the transfer, then copies
//
// A transfer takes nothing before its stream has come to it: so no slot, stream or thread is ever
// held by one that has not started, and transfers never wait for each other's streams (DESIGN:
// decision 5). The driver's own copy of pageable memory waits for the stream as well.
//
// Where the driver's time is virtual, the calling thread does the work of all threads, since
// nothing may depend on the order of real ones.
#pragma once

#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "exec/copy_threads.hpp"
#include "exec/devices.hpp"
#include "exec/event_pool.hpp"
#include "exec/host_side.hpp"
#include "exec/staging_memory.hpp"
#include "exec/transfer_state.hpp"
#include "plan/pageable_plan.hpp"

namespace polypath {

/// A further destination of a transfer to a GPU: the same bytes go there.
struct PageableEnd {
  CUdeviceptr device = 0;
  int gpu = 0;
  CallerStream caller;
  int caller_gpu = 0;  ///< whose primary context the caller's stream belongs to
};

/// Between `host`, pageable memory or a file, and `device`, on GPU `gpu`.
struct PageableTransfer {
  CUdeviceptr device = 0;
  HostSide host;
  std::uint64_t bytes = 0;
  bool is_to_gpu = false;
  /// An earlier part went before it on the same stream, and nothing came between: the stream has
  /// come to it.
  bool is_further_part = false;
  int gpu = 0;
  CallerStream caller;
  int caller_gpu = 0;  ///< whose primary context the caller's stream belongs to
  /// On the plan's further GPUs. It is one operation on the streams of all.
  std::vector<PageableEnd> further = {};
};

struct PageableResult {
  bool is_done = false;  ///< all bytes are on their way, and the callers' streams wait for them
  /// The host's memory could not be read or written. Copied natively, the program gets the signal.
  bool has_faulted = false;
  /// Nothing of it is under way any more: a native copy may follow.
  bool is_ordered = true;
  std::exception_ptr error = {};  ///< FileError: no copy can do better
  /// From when the caller's stream had come to it until the threads had ended, in the node's time.
  double threads_us = 0;
  std::uint64_t page_faults = 0;           ///< of the process meanwhile
  std::vector<std::uint64_t> route_bytes;  ///< by route of the plan
  std::vector<std::uint64_t> route_chunks;
};

/// Thread-safe.
class PageableCopies {
 public:
  /// All must outlive it. `is_virtual`: of the driver's time.
  PageableCopies(std::shared_ptr<const CudaDriver> driver, Devices& devices, const Node& node,
                 EventPool& forks, int threads, bool is_virtual);
  ~PageableCopies();
  PageableCopies(const PageableCopies&) = delete;
  PageableCopies& operator=(const PageableCopies&) = delete;

  [[nodiscard]] int threads() const noexcept { return threads_.count(); }
  /// Makes what the plan's route needs. Slow. Throws DriverError.
  void prepare(const PageablePlan& plan, std::size_t route);
  /// Whether the plan's route is ready.
  [[nodiscard]] bool is_ready(const PageablePlan& plan, std::size_t route);
  /// Bytes of pinned memory.
  [[nodiscard]] std::uint64_t pinned_bytes();

  /// All routes of the plan must be ready. Throws nothing.
  PageableResult run(const PageableTransfer& transfer, const PageablePlan& plan) noexcept;

 private:
  class Work;
  struct Pending;
  struct Slot;
  struct Worker;
  /// Streams of the GPU that issues, by what they carry: to or from host memory (-1), or over
  /// another GPU to or from the transfer's own.
  using StreamKey = std::pair<int, int>;
  struct Streams {
    CUcontext context = nullptr;
    std::vector<CUstream> streams;
  };
  /// What a route of a plan runs on.
  struct Lane {
    const Streams* first = nullptr;   ///< the only one to the GPU, and on the direct route
    const Streams* second = nullptr;  ///< from the GPU over another one
    int first_gpu = 0;
    int second_gpu = 0;
    CUdeviceptr staging = 0;  ///< 0: chunks go right to the GPU's own destination
  };

  static std::vector<StreamKey> keys_of(const PageablePlan& plan, std::size_t route);
  /// Whether the route has chunks lie in staging memory.
  static bool is_staged(const PageablePlan& plan, std::size_t route);
  /// Lets what a route issues reach all destinations.
  void reach_destinations(const PageablePlan& plan, std::size_t route);
  std::vector<Lane> lanes_of(const PageablePlan& plan);
  /// In pieces, so that no call of the driver takes long; all of them or none.
  void make_slots(int gpu);
  /// Lets the GPU's context reach the slots.
  void reach_slots(int gpu);
  void make_streams(const StreamKey& key);
  void make_staging(int via, int gpu);
  /// The node's time: virtual, or this machine's.
  [[nodiscard]] double now_us() const;
  /// Does the work of all threads. Each needs `chunk_us` for a chunk.
  void run_here(SharedWork& work, int seats, double chunk_us, bool is_to_gpu);
  void wait_for_forks(const PageableTransfer& transfer);
  void wait_for_fork(const CallerStream& caller, int caller_gpu);
  void join(const PageableTransfer& transfer, Work& work);
  /// Waits until nothing is under way on the plan's streams; false where that is not known.
  bool quiesce(const std::vector<Lane>& lanes) noexcept;
  [[nodiscard]] const CudaDriver& driver() const noexcept { return *driver_; }

  std::shared_ptr<const CudaDriver> driver_;
  Devices& devices_;
  const Node& node_;
  EventPool& forks_;
  const bool is_virtual_;
  EventPool events_;  // recorded on streams of this file alone, all of which move
  std::mutex preparing_;
  std::mutex mutex_;                                   // for what follows
  std::vector<std::unique_ptr<StagingMemory>> slots_;  // of all threads, in pieces
  std::uint64_t slots_bytes_ = 0;
  std::set<int> slots_reached_;                            // by GPUs
  std::map<StreamKey, Streams> streams_;                   // their addresses stay
  std::map<int, std::unique_ptr<StagingMemory>> staging_;  // by GPU
  std::set<std::pair<int, int>> reached_;  // (GPU with staging memory, GPU that may reach it)
  std::set<std::pair<int, int>> sends_;    // (GPU that sends on, GPU of a destination)
  std::vector<std::unique_ptr<Worker>> workers_;  // by thread, each used by that one alone
  double (*clock_us_)() = nullptr;                // of virtual time; else null
  void (*advance_us_)(double) = nullptr;          // lets virtual time pass
  std::mutex virtual_mutex_;                      // in virtual time: one transfer at a time
  CopyThreads threads_;  // the last member: it is joined before what it uses
};

}  // namespace polypath
