// Streams that wait for words in memory, and put small messages: each time by a small kernel, which
// looks for an abort itself.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <mutex>

#include "comm/kernels/exchange_args.h"
#include "comm/kernels/stream_put_args.h"
#include "comm/kernels/stream_wait_args.h"
#include "driver/kernel_module.hpp"
#include "driver/resources.hpp"

namespace polypath {

/// Whether a capture is under way on the stream.
bool is_captured(const CudaDriver& driver, CUstream stream);

/// The waits of one GPU. Thread-safe, with one thread a stream; no lock is held over a driver call
/// that may block.
class StreamWaits {
 public:
  /// Both must outlive it; `context` is that of all streams. Throws NotSupported and DriverError as
  /// KernelModule.
  StreamWaits(const CudaDriver& driver, CUcontext context);

  /// Lets `stream` wait as `args` say. Throws DriverError. The context is current.
  void wait(StreamWaitArgs args, CUstream stream);
  /// Lets `stream` store signals, and wait for some, as `args` say. Errors: as wait().
  void signal(StreamSignalArgs args, CUstream stream);
  /// Lets `stream` put, signal and then wait as `args` say. Errors: as wait(). `has_bytes`: not
  /// only signals, for which one warp is enough.
  void put(StreamPutArgs args, bool has_bytes, CUstream stream);
  /// Before an exchange between nodes, and after it. Errors: as wait().
  void begin_exchange(ExchangeArgs args, CUstream stream);
  void end_exchange(ExchangeArgs args, CUstream stream);
  /// Whether a stream still waits, or comes to a wait that was issued; outside of graphs.
  bool any() { return on_more_than(0); }
  /// Whether more than `streams` streams wait so.
  bool on_more_than(std::size_t streams);

 private:
  struct Launch {
    CUfunction kernel;
    unsigned blocks;
    unsigned threads;
    bool waits;
  };
  void launch(const Launch& launch, void* args, CUstream stream);
  /// After the waits of one stream, in their order: one that has come says so of all before it.
  using Pending = std::list<Event>;
  void sweep();  // with the lock
  [[nodiscard]] bool has_come(const Event& event) const;

  const CudaDriver& driver_;
  CUcontext context_;
  std::shared_ptr<const KernelModule> module_;
  std::shared_ptr<const KernelModule> block_copies_;  ///< of the engine
  CUfunction wait_ = nullptr;
  CUfunction signals_ = nullptr;
  CUfunction puts_ = nullptr;
  CUfunction exchange_begin_ = nullptr;
  CUfunction exchange_end_ = nullptr;
  std::mutex mutex_;
  std::map<unsigned long long, Pending> pending_;  // by the stream's id
  std::size_t pending_count_ = 0;
  std::list<Event> free_;
  std::size_t sweep_at_ = 64;
};

}  // namespace polypath
