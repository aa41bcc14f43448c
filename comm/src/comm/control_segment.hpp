// What the ranks of a communicator share in host memory: a board, on which each rank writes what
// all others read. Bytes are gathered over it; ranks leave on it; and it holds the abort that ends
// every wait of every rank.
//
//   make()     rank 0, in a memory file that no folder holds: nothing is left when processes die
//   open()     the others, by the number of the file in rank 0's process; ranks of one process
//              share one mapping
//   gather()   all ranks, in the same order
//   abort()    any thread, at any time: every waiting rank stops waiting
//   leave()    a rank that is done
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/process.hpp"

namespace polypath {

/// Tells a board from any other of this machine, also from one of a process that had the same
/// number.
struct ControlSegmentId {
  std::uint64_t high = 0;
  std::uint64_t low = 0;

  friend auto operator<=>(const ControlSegmentId&, const ControlSegmentId&) = default;
};

/// What a rank does in a gather: ranks that do different things are told so, instead of taking each
/// other's bytes for something else.
struct Call {
  enum class Kind : std::uint32_t { exchange, alloc, alloc_host, free, split };
  Kind kind = Kind::exchange;
  std::uint32_t stage = 0;   ///< of a call that gathers more than once
  std::uint64_t detail = 0;  ///< bytes, or the number of a memory

  friend bool operator==(const Call&, const Call&) = default;
};
/// "alloc(4096 bytes)".
std::string to_string(const Call& call);

/// How a rank left.
enum class Departure : std::uint32_t {
  none,       ///< it is there
  left,       ///< it destroyed its communicator
  exited,     ///< its process ended normally, without that
  gpu_reset,  ///< its program reset the GPU
  ended,      ///< its process is gone
};

/// "destroyed the communicator".
const char* text_of(Departure departure) noexcept;

/// Thread-safe, but for gather() and leave() of one rank.
class ControlSegment {
 public:
  using Milliseconds = std::chrono::milliseconds;

  /// A new board for `size` ranks. Throws Error.
  static std::shared_ptr<ControlSegment> make(int size);
  /// The board `id` of `maker`, which has it as file `file`. Throws Error, with what to do.
  static std::shared_ptr<ControlSegment> open(const ProcessId& maker, int file,
                                              const ControlSegmentId& id, int size);
  ~ControlSegment();
  ControlSegment(const ControlSegment&) = delete;
  ControlSegment& operator=(const ControlSegment&) = delete;

  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] const ControlSegmentId& id() const noexcept { return id_; }
  /// Its file in this process.
  [[nodiscard]] int file() const noexcept { return file_; }

  /// All-gather: `mine` of every rank, in rank order, into `all`. Waits for each rank no longer
  /// than `limit` a piece of a few KiB. Throws CommunicatorError when the board is or becomes
  /// aborted; a rank that does not come, has left, or does something else aborts it.
  void gather(int rank, const Call& call, std::span<const std::byte> local,
              std::span<std::byte> all, Milliseconds limit);

  /// The first reason is kept. Returns at once.
  void abort(std::string_view reason) noexcept;
  [[nodiscard]] bool aborted() const noexcept;
  /// The reason of the abort; empty when there was none.
  [[nodiscard]] std::string reason() const;
  /// Throws CommunicatorError with the reason once it was aborted.
  void require_usable() const;

  /// `rank` calls no more and reaches into no other rank's memory. `release` frees what others may
  /// reach into, once the last of the `here` ranks of this process has left and no rank may_reach()
  /// it any more. That last rank waits for it, but no longer than `limit`, and hardly after an
  /// abort; then it runs its own. What it may not run is returned, for late_release.hpp: all where
  /// `limit` is 0 or passed, else those of the other ranks of this process. These have gone on, and
  /// a kernel of theirs, for which freeing waits, may wait for the caller. Once `stops` says so it
  /// waits no longer, and nothing runs or is returned; wake_all() makes it ask.
  std::vector<std::function<void()>> leave(int rank, int here, std::function<void()> release,
                                           Milliseconds limit,
                                           const std::function<bool()>& stops) noexcept;
  /// Before `rank` departs: whether its kernels may still reach into other ranks' memory after
  /// that.
  void set_reaching(int rank, bool is_reaching) noexcept;
  /// Whether `rank`, or a kernel of it, may reach into other ranks' memory: it has not left, or
  /// its kernels have not ended.
  [[nodiscard]] bool may_reach(int rank) const noexcept;
  /// `rank` goes without a call of its own, having taken part in calls(rank): its process ends, or
  /// its GPU is reset. Returns at once; of several the first counts.
  void depart(int rank, Departure why) noexcept;
  [[nodiscard]] bool has_left(int rank) const noexcept;
  /// How the rank left.
  [[nodiscard]] Departure departure_of(int rank) const noexcept;
  /// How many ranks have left; grows.
  [[nodiscard]] std::uint32_t departures() const noexcept;
  /// `rank` has completed all work that began before `departures` ranks had left: it writes into
  /// memory of other ranks only by calls that it begins later.
  void settle(int rank, std::uint32_t departures) noexcept;
  [[nodiscard]] std::uint32_t settled(int rank) const noexcept;
  /// Waits until a rank comes, leaves or settles, or for `limit`.
  void wait_bell(std::uint32_t heard, Milliseconds limit) const noexcept;
  [[nodiscard]] std::uint32_t bell() const noexcept;
  /// `rank` begins a call that all ranks take part in.
  void count_call(int rank) noexcept;
  [[nodiscard]] std::uint64_t calls(int rank) const noexcept;
  /// Bytes that a rank may leave for the others once, at any time; none of them waits for it.
  using Note = std::array<std::byte, 128>;
  /// Notes about GPUs that are no ranks, one each.
  static constexpr std::size_t kRelayNotes = 6;
  /// `rank` leaves its note.
  void leave_note(int rank, const Note& note) noexcept;
  /// Nothing: the rank has left none yet.
  [[nodiscard]] std::optional<Note> note_of(int rank) const noexcept;
  /// As leave_note() and note_of(), of a relay; one rank leaves it.
  void leave_relay_note(std::size_t relay, const Note& note) noexcept;
  [[nodiscard]] std::optional<Note> relay_note(std::size_t relay) const noexcept;

  // Words for level_agreement.hpp, which begin as 0.

  [[nodiscard]] std::atomic<std::uint64_t>& level_record() noexcept;
  /// The number of the rank's latest call whose plan has levels.
  [[nodiscard]] std::atomic<std::uint64_t>& issued(int rank) noexcept;
  /// The level that the rank would choose.
  [[nodiscard]] std::atomic<std::uint8_t>& proposed_level(int rank) noexcept;

  /// The process of `rank` is gone: aborts, and no rank waits for it to leave.
  void ended(int rank, std::string_view reason) noexcept;

  // For threads that watch the board.

  /// Changes with each abort() and wake_watchers().
  [[nodiscard]] std::uint32_t watched() const noexcept;
  /// Waits until watched() is not `seen` any more, or for `limit`.
  void wait_watched(std::uint32_t seen, Milliseconds limit) const noexcept;
  void wake_watchers() noexcept;
  /// Lets all waits of this process's ranks look anew.
  static void wake_all() noexcept;

 private:
  struct LeftNote;
  struct Header;
  struct Record;
  struct Slot;

  ControlSegment(int file, void* memory, std::size_t bytes, const ControlSegmentId& id,
                 int size) noexcept;
  static std::shared_ptr<ControlSegment> map(int file, const ControlSegmentId& id, int size,
                                             bool is_new);
  [[nodiscard]] Header& header() const noexcept;
  [[nodiscard]] Record& record(int rank) const noexcept;
  [[nodiscard]] Slot& slot(int rank, std::uint64_t round) const noexcept;
  void ring() noexcept;
  /// Until all ranks have come to `round`, which `call` begins.
  void wait_for_all(int rank, std::uint64_t round, const Call& call, Milliseconds limit);
  /// "ranks 1, 2 destroyed the communicator": all that left as the first of them did.
  [[nodiscard]] std::string departed(const std::vector<int>& ranks) const;
  /// Throws unless all ranks make the same call.
  void require_same(std::uint64_t round);
  [[noreturn]] void fail(std::string_view reason);

  const int file_;
  void* const memory_;
  const std::size_t bytes_;
  const ControlSegmentId id_;
  const int size_;

  std::mutex leaving_;
  int left_here_ = 0;
  std::vector<std::function<void()>> releases_;
};

}  // namespace polypath
