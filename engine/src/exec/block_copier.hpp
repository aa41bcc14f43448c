// Runs the kernel that copies small blocks: on several GPUs at once, each on its part of a table,
// for one caller's stream.
//
//   prepare()  context, kernel, streams, peer access, table         slow, any thread
//   lease()    a stream of each other GPU, a range of the table     fast, never waits
//   BlockRun   fork, kernels, join                                  fast
//
// The caller's own GPU copies its part on the caller's stream, like a direct route. A part on
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

#include "driver/context_guard.hpp"
#include "driver/kernel_module.hpp"
#include "exec/block_table.hpp"
#include "exec/retry.hpp"
#include "exec/route_resources.hpp"

namespace polypath {

/// What one GPU copies: entries of the run's table.
struct BlockPart {
  int gpu = 0;
  std::size_t first = 0;
  std::size_t count = 0;
  unsigned thread_blocks = 1;
};

/// How a run ended. Parts that were not launched must be copied natively, after it.
struct BlockRunResult {
  bool is_ordered = true;         ///< the caller's stream waits for all that was launched
  std::exception_ptr error = {};  ///< the first failure, of a part or of the order
};

class BlockCopier;

/// One run: streams of other GPUs, and a range of the table. For one thread.
///
///   fork()     before anything
///   launch()   for each part, once its entries are written; the kernels of one GPU run in order
///   end()      the caller's stream waits for all
class BlockRun {
 public:
  BlockRun(BlockRun&& other) = delete;
  ~BlockRun();

  [[nodiscard]] CopyBlock* entries() const noexcept { return range_.entries; }
  /// False: nothing can be launched.
  bool fork() noexcept;
  /// False: the part has to be copied natively.
  bool launch(const BlockPart& part) noexcept;
  BlockRunResult end() noexcept;

 private:
  friend class BlockCopier;
  struct Lane {
    Channel* stream = nullptr;
    std::shared_ptr<PooledEvent> end = {};
    bool is_open = false;  ///< it waits for the fork
    bool has_work = false;
  };
  BlockRun(BlockCopier& owner, const CallerStream& caller, int caller_gpu);
  template <typename Body>
  bool attempt(Body&& body) noexcept;
  void end_lane(int gpu, Lane& lane);

  BlockCopier& owner_;
  std::shared_ptr<TransferState> ticket_;
  int caller_gpu_;
  std::map<int, Lane> lanes_;  // by GPU, of other GPUs than the caller's
  std::map<int, CUfunction> kernels_;
  std::optional<ContextGuard> guard_;
  std::shared_ptr<PooledEvent> end_;
  BlockTable::Range range_;
  bool has_range_ = false;
  bool is_forked_ = false;
  bool has_ended_ = false;
  BlockRunResult result_;
};

/// Thread-safe.
class BlockCopier {
 public:
  BlockCopier(std::shared_ptr<const CudaDriver> driver, Devices& devices, EventPool& events);
  ~BlockCopier();
  BlockCopier(const BlockCopier&) = delete;
  BlockCopier& operator=(const BlockCopier&) = delete;

  /// Loads the kernel in `context`, which is current; later calls find it. The driver loads only
  /// when the GPU's kernels have ended, and lets no other thread in meanwhile: to be called before
  /// kernels run that wait for this process (docs/cuda-notes.md). Throws NotSupported, DriverError.
  static std::shared_ptr<const KernelModule> load_kernel(const CudaDriver& driver,
                                                         CUcontext context);

  /// Makes `gpu` able to copy blocks from and to memory of the GPUs `reached`, by `streams` runs at
  /// once. Slow; throws NotSupported and DriverError, and remembers that.
  void prepare(int gpu, const std::set<int>& reached, std::size_t streams);
  /// Whether prepare() is done for the GPU and for memory of `reached` (-1: of the host alone).
  [[nodiscard]] bool ready(int gpu, int reached);
  /// Whether to call prepare(): the first time, and after a failure with growing pauses.
  [[nodiscard]] bool may_prepare(int gpu);

  /// A run with parts on these GPUs and this number of entries. Null where nothing was leased:
  /// `busy` becomes a GPU whose streams all hold runs that have not started, or -1 where the table
  /// is full. Throws DriverError.
  std::unique_ptr<BlockRun> lease(const CallerStream& caller, int caller_gpu,
                                  std::span<const int> gpus, std::size_t entries, int& busy);

  /// Bytes of pinned memory.
  static constexpr std::uint64_t kHostBytes = BlockTable::kEntries * sizeof(CopyBlock);

 private:
  friend class BlockRun;
  struct Gpu {
    std::shared_ptr<const KernelModule> module;
    CUfunction kernel = nullptr;
    std::set<int> reached;
    std::vector<std::unique_ptr<Channel>> streams;
    Retry retry;
    bool has_failed = false;
  };
  Channel* find_stream(Gpu& gpu, TransferState& ticket);  // with mutex_ held

  std::shared_ptr<const CudaDriver> driver_;
  Devices& devices_;
  EventPool& events_;
  BlockTable table_;
  std::mutex preparing_;  // held while a GPU is prepared
  std::mutex mutex_;
  std::map<int, Gpu> gpus_;
};

}  // namespace polypath
