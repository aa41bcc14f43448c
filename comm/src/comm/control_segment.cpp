#include "comm/control_segment.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <new>
#include <random>
#include <system_error>

#include "base/error.hpp"
#include "base/futex.hpp"
#include "base/log.hpp"

namespace polypath {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kMagic = 0x50502d424f415244;  // "PP-BOARD"
constexpr std::size_t kMaxReason = 1000;
constexpr std::size_t kSlotBytes = 4096;
/// How long a leaving rank waits for others after an abort.
constexpr std::chrono::seconds kFarewell{1};

static_assert(std::atomic<std::uint32_t>::is_always_lock_free &&
              std::atomic<std::uint64_t>::is_always_lock_free);

std::string reason_of(int error) { return std::generic_category().message(error); }

/// The boards that this process has mapped.
struct Mapped {
  std::mutex mutex;
  std::map<ControlSegmentId, std::weak_ptr<ControlSegment>> boards;
};
Mapped& mapped() {
  static Mapped* const all = new Mapped;  // for communicators that end with the process
  return *all;
}

std::string names(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

}  // namespace

const char* text_of(Departure departure) noexcept {
  switch (departure) {
    case Departure::none: return "is there";
    case Departure::left: return "destroyed the communicator";
    case Departure::exited: return "ended its process";
    case Departure::gpu_reset: return "reset its GPU";
    case Departure::ended: break;
  }
  return "has ended";
}

enum AbortState : std::uint32_t { kUsable, kAborting, kAborted };

struct ControlSegment::LeftNote {
  std::atomic<bool> is_there{false};
  Note note{};

  void leave(const Note& left) noexcept {
    note = left;
    is_there.store(true, std::memory_order_release);
  }
  [[nodiscard]] std::optional<Note> read() const noexcept {
    if (!is_there.load(std::memory_order_acquire)) return std::nullopt;
    return note;
  }
};

struct ControlSegment::Header {
  std::uint64_t magic = kMagic;
  ControlSegmentId id;
  std::int32_t size = 0;
  std::atomic<std::uint32_t> bell{0};   // rung when a rank comes or leaves, and by an abort
  std::atomic<std::uint32_t> watch{0};  // for watching threads
  std::atomic<std::uint32_t> abort_state{kUsable};
  std::atomic<std::uint32_t> departures{0};
  std::uint32_t reason_bytes = 0;
  std::array<char, kMaxReason> reason{};
  alignas(64) std::atomic<std::uint64_t> level_record{0};  // read at each call with levels
  LeftNote relay_notes[kRelayNotes];
};

struct alignas(64) ControlSegment::Record {
  std::atomic<std::uint64_t> round{0};  // of the last gather that the rank has come to
  std::atomic<Departure> left{Departure::none};
  std::atomic<std::uint32_t> settled{0};
  std::atomic<bool> is_reaching{false};             // when it has left
  alignas(64) std::atomic<std::uint64_t> calls{0};  // written at each call
  std::atomic<std::uint64_t> issued{0};
  std::atomic<std::uint8_t> proposed_level{0};
  LeftNote note;
};

/// Each rank has two, which take turns: a rank that writes the next round's has read the last
/// one's, but others may still be reading that.
struct alignas(64) ControlSegment::Slot {
  static constexpr std::size_t kPayload = kSlotBytes - sizeof(Call) - sizeof(std::uint64_t);
  Call call;
  std::uint64_t bytes = 0;  // of the whole gather
  std::array<std::byte, kPayload> payload{};
};

namespace {

constexpr std::size_t kHeaderBytes = 4096;

}  // namespace

std::string to_string(const Call& call) {
  switch (call.kind) {
    case Call::Kind::exchange: return fmt::format("exchange({} bytes)", call.detail);
    case Call::Kind::alloc: return fmt::format("alloc({} bytes)", call.detail);
    case Call::Kind::alloc_host: return fmt::format("alloc_host({} bytes)", call.detail);
    case Call::Kind::free: return fmt::format("free(memory {})", call.detail);
    case Call::Kind::split: return "split()";
  }
  return "an unknown call";
}

// ---- life -------------------------------------------------------------------

ControlSegment::ControlSegment(int file, void* memory, std::size_t bytes,
                               const ControlSegmentId& id, int size) noexcept
    : file_(file), memory_(memory), bytes_(bytes), id_(id), size_(size) {}

ControlSegment::~ControlSegment() {
  {
    Mapped& all = mapped();
    const std::lock_guard lock(all.mutex);
    const auto known = all.boards.find(id_);
    if (known != all.boards.end() && known->second.expired()) all.boards.erase(known);
  }
  ::munmap(memory_, bytes_);
  ::close(file_);
}

std::shared_ptr<ControlSegment> ControlSegment::map(int file, const ControlSegmentId& id, int size,
                                                    bool is_new) {
  const std::size_t bytes =
      kHeaderBytes + static_cast<std::size_t>(size) * (sizeof(Record) + 2 * sizeof(Slot));
  struct stat status{};
  const bool fits =
      is_new ? ::ftruncate(file, static_cast<off_t>(bytes)) == 0
             : ::fstat(file, &status) == 0 && static_cast<std::size_t>(status.st_size) == bytes;
  void* const memory =
      fits ? ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
  if (memory == MAP_FAILED) {
    const int error = errno;
    ::close(file);
    throw Error(fmt::format("the communicator's board cannot be mapped: {}",
                            fits || is_new ? reason_of(error) : "it has another size"));
  }
  std::shared_ptr<ControlSegment> board(new ControlSegment(file, memory, bytes, id, size));
  if (is_new) {
    static_assert(sizeof(Header) <= kHeaderBytes);
    Header* const header = new (memory) Header;
    header->id = id;
    header->size = size;
    for (int rank = 0; rank < size; ++rank) {
      new (&board->record(rank)) Record;
      for (const std::uint64_t turn : {0, 1}) new (&board->slot(rank, turn)) Slot;
    }
  } else if (board->header().magic != kMagic || board->header().id != id ||
             board->header().size != size) {
    throw Error("the communicator's board is not the one that rank 0 made");
  }
  return board;
}

std::shared_ptr<ControlSegment> ControlSegment::make(int size) {
  const int file = ::memfd_create("polypath-board", MFD_CLOEXEC);
  if (file < 0)
    throw Error(fmt::format("the communicator's board cannot be made: {}", reason_of(errno)));
  std::random_device random;
  const auto word = [&] { return std::uint64_t{random()} << 32 | random(); };
  const ControlSegmentId id{word(), word()};
  std::shared_ptr<ControlSegment> board = map(file, id, size, true);
  Mapped& all = mapped();
  const std::lock_guard lock(all.mutex);
  all.boards[id] = board;
  return board;
}

std::shared_ptr<ControlSegment> ControlSegment::open(const ProcessId& maker, int file,
                                                     const ControlSegmentId& id, int size) {
  Mapped& all = mapped();
  {
    const std::lock_guard lock(all.mutex);
    if (const auto known = all.boards.find(id); known != all.boards.end())
      if (std::shared_ptr<ControlSegment> board = known->second.lock()) return board;
  }
  const std::string path = fmt::format("/proc/{}/fd/{}", maker.pid, file);
  const int own = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (own < 0 && (errno == EACCES || errno == EPERM))
    throw Error(
        fmt::format("{} may not be opened: run all ranks as one user, in one container and "
                    "without changed privileges",
                    path));
  if (own < 0) throw Error(fmt::format("{} cannot be opened: {}", path, reason_of(errno)));
  // Without the lock, which the end of a board takes, also of one that turns out to be another.
  const std::shared_ptr<ControlSegment> opened = map(own, id, size, false);
  const std::lock_guard lock(all.mutex);
  std::weak_ptr<ControlSegment>& known = all.boards[id];
  std::shared_ptr<ControlSegment> board = known.lock();  // another thread was faster
  if (board == nullptr) known = board = opened;
  return board;
}

ControlSegment::Header& ControlSegment::header() const noexcept {
  return *static_cast<Header*>(memory_);
}

ControlSegment::Record& ControlSegment::record(int rank) const noexcept {
  auto* const first = reinterpret_cast<Record*>(static_cast<std::byte*>(memory_) + kHeaderBytes);
  return first[rank];
}

ControlSegment::Slot& ControlSegment::slot(int rank, std::uint64_t round) const noexcept {
  auto* const first = reinterpret_cast<Slot*>(&record(size_));
  return first[2 * static_cast<std::uint64_t>(rank) + round % 2];
}

// ---- gather -----------------------------------------------------------------

void ControlSegment::ring() noexcept {
  header().bell.fetch_add(1, std::memory_order_release);
  futex_wake(header().bell, FutexScope::shared);
}

void ControlSegment::gather(int rank, const Call& call, std::span<const std::byte> local,
                            std::span<std::byte> all, Milliseconds limit) {
  if (all.size() != local.size() * static_cast<std::size_t>(size_))
    throw InvalidArgument(fmt::format("{}: all has {} bytes, not {} times {}", to_string(call),
                                      all.size(), size_, local.size()));
  require_usable();
  std::size_t done = 0;
  do {
    const std::size_t piece = std::min(local.size() - done, Slot::kPayload);
    const std::uint64_t round = record(rank).round.load(std::memory_order_relaxed) + 1;
    Slot& own = slot(rank, round);
    own.call = call;
    own.bytes = local.size();
    if (piece > 0) std::memcpy(own.payload.data(), local.data() + done, piece);
    record(rank).round.store(round, std::memory_order_release);
    ring();
    wait_for_all(rank, round, call, limit);
    require_same(round);
    for (int other = 0; other < size_ && piece > 0; ++other)
      std::memcpy(all.data() + static_cast<std::size_t>(other) * local.size() + done,
                  slot(other, round).payload.data(), piece);
    done += piece;
  } while (done < local.size());
}

void ControlSegment::wait_for_all(int rank, std::uint64_t round, const Call& call,
                                  Milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  while (true) {
    const std::uint32_t heard = header().bell.load(std::memory_order_acquire);
    // Both before the rounds: a rank may have come, and then aborted or left. What all have come to
    // is theirs, also after a later abort.
    const bool is_aborted = aborted();
    std::vector<int> missing;
    std::vector<int> gone;
    for (int other = 0; other < size_; ++other) {
      const bool left = has_left(other);
      if (record(other).round.load(std::memory_order_acquire) >= round) continue;
      (left ? gone : missing).push_back(other);
    }
    if (missing.empty() && gone.empty()) return;
    if (is_aborted) require_usable();
    if (!gone.empty())
      fail(fmt::format("{} before {} of rank {}", departed(gone), to_string(call), rank));
    const auto left = deadline - Clock::now();
    if (left.count() <= 0)
      fail(fmt::format("{} did not come to {} within {} ms: rank {} waited", names(missing),
                       to_string(call), limit.count(), rank));
    futex_wait(header().bell, heard, FutexScope::shared, left);
  }
}

std::string ControlSegment::departed(const std::vector<int>& ranks) const {
  const Departure how = departure_of(ranks.front());
  std::vector<int> alike;
  for (const int rank : ranks)
    if (departure_of(rank) == how) alike.push_back(rank);
  return fmt::format("{} {}", names(alike), text_of(how));
}

void ControlSegment::require_same(std::uint64_t round) {
  const Slot& first = slot(0, round);
  for (int other = 1; other < size_; ++other) {
    const Slot& slot_of_other = slot(other, round);
    if (slot_of_other.call != first.call)
      fail(
          fmt::format("rank 0 calls {}, rank {} calls {}: all ranks must make the same calls in "
                      "the same order",
                      to_string(first.call), other, to_string(slot_of_other.call)));
    if (slot_of_other.bytes != first.bytes)
      fail(fmt::format("rank 0 calls {} with {} bytes, rank {} with {}", to_string(first.call),
                       first.bytes, other, slot_of_other.bytes));
  }
}

// ---- abort ------------------------------------------------------------------

void ControlSegment::abort(std::string_view reason) noexcept {
  Header& shared = header();
  std::uint32_t usable = kUsable;
  if (!shared.abort_state.compare_exchange_strong(usable, kAborting, std::memory_order_acq_rel))
    return;
  const std::size_t bytes = std::min(reason.size(), kMaxReason);
  std::memcpy(shared.reason.data(), reason.data(), bytes);
  shared.reason_bytes = static_cast<std::uint32_t>(bytes);
  shared.abort_state.store(kAborted, std::memory_order_release);
  ring();
  wake_watchers();
}

bool ControlSegment::aborted() const noexcept {
  return header().abort_state.load(std::memory_order_acquire) != kUsable;
}

std::string ControlSegment::reason() const {
  const Header& shared = header();
  if (!aborted()) return {};
  // A rank that writes it takes a moment, unless it died in that.
  for (int i = 0; i < 1000; ++i) {
    if (shared.abort_state.load(std::memory_order_acquire) == kAborted)
      return {shared.reason.data(), std::min<std::size_t>(shared.reason_bytes, kMaxReason)};
    ::usleep(100);
  }
  return "a rank ended while it gave a reason";
}

void ControlSegment::require_usable() const {
  if (aborted()) throw CommunicatorError(fmt::format("the communicator is unusable: {}", reason()));
}

void ControlSegment::fail(std::string_view reason) {
  abort(reason);
  require_usable();
  throw CommunicatorError(std::string(reason));
}

// ---- leaving, watching ------------------------------------------------------

bool ControlSegment::has_left(int rank) const noexcept {
  return departure_of(rank) != Departure::none;
}

Departure ControlSegment::departure_of(int rank) const noexcept {
  return record(rank).left.load(std::memory_order_acquire);
}

std::uint32_t ControlSegment::departures() const noexcept {
  return header().departures.load(std::memory_order_acquire);
}

void ControlSegment::settle(int rank, std::uint32_t departures) noexcept {
  record(rank).settled.store(departures, std::memory_order_release);
  ring();
}

std::uint32_t ControlSegment::settled(int rank) const noexcept {
  return record(rank).settled.load(std::memory_order_acquire);
}

std::uint32_t ControlSegment::bell() const noexcept {
  return header().bell.load(std::memory_order_acquire);
}

void ControlSegment::wait_bell(std::uint32_t heard, Milliseconds limit) const noexcept {
  futex_wait(header().bell, heard, FutexScope::shared, limit);
}

void ControlSegment::count_call(int rank) noexcept {
  std::atomic<std::uint64_t>& calls = record(rank).calls;
  calls.store(calls.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

std::uint64_t ControlSegment::calls(int rank) const noexcept {
  return record(rank).calls.load(std::memory_order_acquire);
}

std::atomic<std::uint64_t>& ControlSegment::level_record() noexcept {
  return header().level_record;
}

std::atomic<std::uint64_t>& ControlSegment::issued(int rank) noexcept {
  return record(rank).issued;
}

std::atomic<std::uint8_t>& ControlSegment::proposed_level(int rank) noexcept {
  return record(rank).proposed_level;
}

void ControlSegment::leave_note(int rank, const Note& note) noexcept {
  record(rank).note.leave(note);
  ring();
}

void ControlSegment::leave_relay_note(std::size_t relay, const Note& note) noexcept {
  header().relay_notes[relay].leave(note);
  ring();
}

std::optional<ControlSegment::Note> ControlSegment::note_of(int rank) const noexcept {
  return record(rank).note.read();
}

std::optional<ControlSegment::Note> ControlSegment::relay_note(std::size_t relay) const noexcept {
  return header().relay_notes[relay].read();
}

void ControlSegment::depart(int rank, Departure why) noexcept {
  Departure there = Departure::none;
  if (!record(rank).left.compare_exchange_strong(there, why, std::memory_order_acq_rel)) return;
  header().departures.fetch_add(1, std::memory_order_release);
  ring();
  wake_watchers();
}

void ControlSegment::ended(int rank, std::string_view reason) noexcept {
  abort(reason);
  depart(rank, Departure::ended);
}

void ControlSegment::set_reaching(int rank, bool is_reaching) noexcept {
  record(rank).is_reaching.store(is_reaching, std::memory_order_release);
  ring();
}

bool ControlSegment::may_reach(int rank) const noexcept {
  return !has_left(rank) || record(rank).is_reaching.load(std::memory_order_acquire);
}

std::vector<std::function<void()>> ControlSegment::leave(
    int rank, int here, std::function<void()> release, Milliseconds limit,
    const std::function<bool()>& stops) noexcept {
  depart(rank, Departure::left);
  std::vector<std::function<void()>> others;
  try {
    const std::lock_guard lock(leaving_);
    if (++left_here_ < here) {
      releases_.push_back(std::move(release));
      return {};
    }
    others.swap(releases_);
    others.reserve(others.size() + 1);
  } catch (const std::exception& error) {
    log_warn("memory of a communicator is not freed: {}", error.what());
    return {};
  }
  const auto all = [&] {
    others.push_back(std::move(release));
    return std::move(others);
  };
  if (limit.count() <= 0) return all();
  const auto begin = Clock::now();
  while (true) {
    const std::uint32_t heard = header().bell.load(std::memory_order_acquire);
    if (stops()) return {};
    bool is_free = true;
    for (int other = 0; other < size_; ++other) is_free = is_free && !may_reach(other);
    if (is_free) break;
    const auto most = aborted() ? std::min<Clock::duration>(limit, kFarewell) : limit;
    const auto left = begin + most - Clock::now();
    if (left.count() <= 0) return all();
    futex_wait(header().bell, heard, FutexScope::shared, left);
  }
  release();
  return others;
}

std::uint32_t ControlSegment::watched() const noexcept {
  return header().watch.load(std::memory_order_acquire);
}

void ControlSegment::wait_watched(std::uint32_t seen, Milliseconds limit) const noexcept {
  futex_wait(header().watch, seen, FutexScope::shared, limit);
}

void ControlSegment::wake_all() noexcept {
  std::vector<std::shared_ptr<ControlSegment>> boards;  // one may end here, which takes the lock
  {
    Mapped& all = mapped();
    const std::lock_guard lock(all.mutex);
    for (const auto& [id, board] : all.boards)
      if (auto segment = board.lock()) boards.push_back(std::move(segment));
  }
  for (const auto& board : boards) board->ring();
}

void ControlSegment::wake_watchers() noexcept {
  header().watch.fetch_add(1, std::memory_order_release);
  futex_wake(header().watch, FutexScope::shared);
}

}  // namespace polypath
