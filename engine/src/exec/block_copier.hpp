// Runs the kernel that copies small blocks: on several GPUs at once, each on its part of a table,
// for one caller's stream.
//
//   prepare()  context, kernel, streams, peer access, table    slow, any thread
//   lease()    a stream of each other GPU, a range of the table        fast, never waits
//   run()      fork, kernels, join                                     fast
//
// The part of the caller's own GPU goes to the caller's stream, like a direct route. A part on
// another GPU waits for the caller's fork, and the caller's stream waits for its end.
#pragma once

#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "driver/kernel_module.hpp"
#include "exec/block_table.hpp"
#include "exec/retry.hpp"
#include "exec/route_resources.hpp"

namespace polypath {

/// What one GPU copies of a run.
struct BlockPart {
  int gpu = 0;
  std::size_t first = 0;  ///< entry of the run's table
  std::size_t count = 0;
  unsigned thread_blocks = 1;
  bool is_issued = false;  ///< set by the run
};

class BlockCopier;

/// Streams and a range of the table for one run. What was not run is free again afterwards.
class BlockLease {
 public:
  BlockLease() = default;
  BlockLease(BlockLease&& other) noexcept { swap(other); }
  BlockLease& operator=(BlockLease&& other) noexcept {
    swap(other);
    return *this;
  }
  ~BlockLease();

  [[nodiscard]] CopyBlock* entries() const noexcept { return range_.entries; }

 private:
  friend class BlockCopier;
  void swap(BlockLease& other) noexcept;

  BlockCopier* owner_ = nullptr;
  std::shared_ptr<TransferState> ticket_;
  std::map<int, Channel*> streams_;  // by GPU, of other GPUs than the caller's
  BlockTable::Range range_;
  bool has_range_ = false;
  bool is_left_ = false;  // kernels may still read the range
};

/// How a run ended. Parts that were not issued must be copied natively, after what was issued.
struct BlockRunResult {
  bool issued = false;            ///< one part at least
  bool is_ordered = true;         ///< the caller's stream waits for all that was issued
  std::exception_ptr error = {};  ///< of a part that was not issued, or of the order
};

/// Thread-safe.
class BlockCopier {
 public:
  BlockCopier(std::shared_ptr<const CudaDriver> driver, Devices& devices, EventPool& events);
  ~BlockCopier();
  BlockCopier(const BlockCopier&) = delete;
  BlockCopier& operator=(const BlockCopier&) = delete;

  /// Makes `gpu` able to copy blocks from and to memory of the GPUs `reached`, by `streams` runs at
  /// once. Slow; throws NotSupported and DriverError, and remembers that.
  void prepare(int gpu, const std::set<int>& reached, std::size_t streams);
  /// Whether prepare() is done for the GPU and for memory of `reached` (-1: of the host alone).
  [[nodiscard]] bool ready(int gpu, int reached);
  /// Whether to call prepare(): the first time, and after a failure with growing pauses.
  [[nodiscard]] bool may_prepare(int gpu);

  /// A lease for parts on these GPUs. `busy` becomes a GPU whose streams all hold runs that have
  /// not started, or -1 where the table is full; then nothing is leased.
  std::optional<BlockLease> lease(const CallerStream& caller, int caller_gpu,
                                  std::span<const int> gpus, std::size_t entries, int& busy);
  /// Launches the kernel for all parts. Their entries are written. Throws nothing.
  BlockRunResult run(BlockLease& lease, int caller_gpu, std::span<BlockPart> parts) noexcept;

  /// Bytes of pinned memory.
  static constexpr std::uint64_t kHostBytes = BlockTable::kEntries * sizeof(CopyBlock);

 private:
  friend class BlockLease;
  struct Gpu {
    std::shared_ptr<const KernelModule> module;
    CUfunction kernel = nullptr;
    std::set<int> reached;
    std::vector<std::unique_ptr<Channel>> streams;
    Retry retry;
    bool has_failed = false;
  };
  Channel* find_stream(Gpu& gpu, TransferState& ticket);  // with mutex_ held
  void launch(const BlockLease& lease, const BlockPart& part, CUfunction kernel,
              CUstream stream) const;

  std::shared_ptr<const CudaDriver> driver_;
  Devices& devices_;
  EventPool& events_;
  BlockTable table_;
  std::mutex preparing_;  // held while a GPU is prepared
  std::mutex mutex_;
  std::map<int, Gpu> gpus_;
};

}  // namespace polypath
