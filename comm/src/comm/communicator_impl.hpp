// What a communicator is made of: for the sources of this folder.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <optional>

#include "base/kept.hpp"
#include "comm/call_levels.hpp"
#include "comm/communicator.hpp"
#include "comm/host_flags.hpp"
#include "comm/process_events.hpp"
#include "comm/put_streams.hpp"
#include "comm/stream_waits.hpp"
#include "comm/watchdog.hpp"

namespace polypath {

struct Hello;

/// Streams of a rank on which several blocks may share out a put.
inline constexpr std::uint64_t kCountingStreams = 64;

struct Communicator::Impl final : ProcessEvents, Keepable<Communicator::Impl> {
  Impl(std::shared_ptr<const CudaDriver> table, const Node& known_node,
       const CommunicatorOptions& options);
  /// With nothing in the context that another thread may take away: leave() comes before.
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  /// What this rank needs of its own GPU.
  void prepare(int gpu, Hello& hello);
  /// The GPU with this UUID, -1 for none.
  [[nodiscard]] int number_of(const std::array<unsigned char, 16>& uuid) const;
  /// Lets this rank's GPU reach the memory of all others. False: it cannot.
  bool reach(const Members& all);
  /// Checks for a kernel that timed out, and for an abort. On the watchdog's thread, and on others.
  void look() noexcept;
  /// Whether this rank needs one that has left: aborts then.
  void look_at_departed();
  /// On the watchdog's thread, many times a second: the same for waits, which are not counted.
  void look_at_waits() noexcept;
  /// On the watchdog's thread: tells ranks that have left that this one writes into their memory no
  /// more. False: it still may.
  bool settle() noexcept;
  /// Waits for other ranks, as ControlSegment::leave() does, for `most`, and ends the thread.
  /// False, and the rank stays: streams of it still wait, and use what it has.
  bool leave(std::chrono::milliseconds most) noexcept;
  /// Does not wait, and frees no memory of the GPU.
  void abandon() noexcept;
  /// Whether a counted call is under way; nothing: none is counted.
  std::optional<bool> has_calls_in_flight() noexcept;
  /// Gives up what streams of this rank wait for, and waits until they do not. False: the time
  /// limit came first.
  bool end_waits();
  /// After work of the GPU failed: aborts, since kernels of other ranks may wait for it.
  void look_at_own_gpu();
  void gpu_is_reset(int gpu) noexcept override;
  void wait_for_others(int gpu, std::chrono::steady_clock::time_point deadline) noexcept override;
  void process_ends() noexcept override;
  /// Throws CommunicatorError with the reason once the communicator is unusable.
  void require_usable();
  /// Where in `own_words` the count of wait_context::reports is.
  [[nodiscard]] std::uint64_t reports_offset() const noexcept;
  /// ... the word of wait_context::next_abort_poll_ns.
  [[nodiscard]] std::uint64_t next_look_offset() const noexcept;
  /// ... the count of this rank's barriers.
  [[nodiscard]] std::uint64_t epoch_offset() const noexcept;
  /// ... and the words of counts_of().
  [[nodiscard]] std::uint64_t counts_offset() const noexcept;
  /// Makes the context current for work on `stream`; throws unless the communicator is usable and
  /// the stream is of this rank's GPU. `what` is the call.
  [[nodiscard]] CurrentContext on(CUstream stream, const char* what);
  /// Throw InvalidArgument for what is wrong with an argument.
  void require(const Signal& signal) const;
  void require(const Put& put) const;
  /// Gives a word of rank `to` its value. The context is current. `captured`: the stream is in
  /// capture.
  void tell(int to, const Signal& signal, CUstream stream, bool captured);
  /// What the kernels of this rank's streams wait with.
  [[nodiscard]] wait_context wait_ctx() const noexcept;
  /// Whether kernels may make all of the puts: they are small, and kernels reach their sources.
  [[nodiscard]] bool fit_kernel(std::span<const PutWithSignal> puts, CUstream stream);
  /// Where blocks that share out a put on this stream are counted, a word for each rank; null: they
  /// are not. Kernels of one stream follow each other, so they have one place.
  [[nodiscard]] std::uint32_t* counts_of(CUstream stream);
  /// The copy of one put. The context is current.
  void copy(const Put& put, CUstream stream);
  /// Puts that fit a kernel, words alone among them, and then waits, by as few kernels as it takes.
  void put_by_kernel(std::span<const PutWithSignal> puts, std::span<const Signal> awaited,
                     CUstream stream);

  std::shared_ptr<const CudaDriver> driver;
  const Node& node;
  CopyEngine* engine = nullptr;
  std::uint64_t put_kernel_max_bytes;
  std::atomic<std::uint64_t> puts_by_kernel{0};
  std::atomic<std::uint64_t> puts_by_copies{0};
  std::atomic<std::chrono::milliseconds> limit;
  std::string where;
  std::shared_ptr<const PrimaryContext> context;
  std::vector<std::shared_ptr<const PrimaryContext>> peers;  // of other ranks of this process
  std::optional<Stream> fill_stream;                         // for filling memory
  WaitRegistry numbered;
  std::optional<HostFlags> words;
  std::optional<StreamWaits> waits;
  std::optional<PutStreamPool> put_streams;
  std::shared_ptr<ControlSegment> board;
  std::optional<CallLevels> levels;
  Members members;
  std::optional<SymmetricHeap> heap;
  SymmetricPlacement placement = SymmetricPlacement::gpus;
  SymmetricMemory barrier_words;  // a 64-bit word for each rank, which that rank raises
  // The same memory, unless that is in host memory: of this rank alone, after those words: reports;
  // next_abort_poll_ns; barriers; counts of blocks, by stream and rank.
  SymmetricMemory own_words;
  std::map<unsigned long long, std::uint64_t> counting_streams;  // by id, their places
  std::mutex calls_mutex;
  std::function<bool()> calls_in_flight;  // of `calls_mutex`; null: no calls are counted
  /// Kernels wait for other ranks that no call tells of: those of the program, and of graphs.
  std::atomic<bool> has_uncounted_waits{false};
  std::uint32_t departures_with_waits = 0;  // that the watchdog saw while this rank waited
  std::optional<Watchdog> watchdog;
};

}  // namespace polypath
