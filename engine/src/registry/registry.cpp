#include "registry/registry.hpp"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <ctime>
#include <mutex>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "registry/peer_files.hpp"

namespace polypath {
namespace {

/// So often may others' normal ends remove the folder while this process opens it.
constexpr int kOpenings = 100;

/// Forks that led to this process: asking the kernel for its number takes longer than all the rest.
std::atomic<int> generation{0};

int current_generation() noexcept {
  [[maybe_unused]] static const int counts_forks =
      pthread_atfork(nullptr, nullptr, [] { generation.fetch_add(1, std::memory_order_relaxed); });
  return generation.load(std::memory_order_relaxed);
}

}  // namespace

std::uint64_t monotonic_ns() noexcept {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

/// One process's part: its own file, and what it reads of the others'. It belongs to the process
/// that made it. Nothing is opened before it is needed.
struct Registry::Session {
  enum class State { unopened, open, unusable, closed };

  Session(std::string folder, const RegistryTimes& by, const Session* parents)
      : path(std::move(folder)), times(by), inherited(parents) {
    if (!path.empty()) return;
    state = State::unusable;
    why_unusable = "it is switched off";
  }

  // All of these under the mutex:

  /// Looks for other processes, if it is time. Whether the registry is open.
  bool look(std::uint64_t now_ns) {
    if (state == State::open && now_ns - looked_ns < times.look_every_ns) return true;
    return look_now(now_ns);
  }

  bool look_now(std::uint64_t now_ns) {
    looked_ns = now_ns;
    if (state == State::unopened ||
        (state == State::open && (own->lost() || !others.refresh(*opened))))
      open();
    return state == State::open;
  }

  /// Whether this process has a file that others see. One system call.
  bool ready_to_write() {
    if (state == State::unopened || (state == State::open && own->lost())) open();
    return state == State::open;
  }

  /// Opens the registry, or opens it again after the folder or this process's file was removed, or
  /// its descriptor was closed. What was published is published again.
  void open() {
    try {
      open_files();
    } catch (const Error& error) {
      give_up(error.what());
      return;
    }
    state = State::open;
    others.refresh(*opened);
    for (const auto& [place, entry] : memory.entries()) write_memory(place, &entry);
    for (std::size_t place = 0; place < kFlights; ++place)
      if (flights.entries()[place].published) write_flight(place);
    write_loads();
  }

  void open_files() {
    own.reset();
    others.clear();
    for (int opening = 0; own == nullptr; ++opening) {
      if (opening == kOpenings) throw Error(path + " is removed again and again");
      opened.emplace(path);
      own = OwnFile::create(*opened);
    }
  }

  void give_up(const std::string& why) {
    log_warn("registry: {}: this process shares nothing with others", why);
    state = State::unusable;
    why_unusable = why;
    own.reset();
    others.clear();
  }

  bool write_memory(std::uint32_t place, const MemoryTable::Entry* entry) {
    const StoredMemory value =
        entry != nullptr ? stored(entry->record, entry->sequence, own->id()) : StoredMemory{};
    return write(kMemoryOffset + place * sizeof value, &value, sizeof value);
  }

  /// As the table has it now.
  bool write_flight(std::size_t place) {
    const FlightTable::Entry& entry = flights.entries()[place];
    const StoredFlight value = entry.token != 0 ? stored(entry.flight, own->id()) : StoredFlight{};
    return write(kFlightsOffset + place * sizeof value, &value, sizeof value);
  }

  /// As they were told last.
  bool write_loads() {
    std::array<StoredLoad, kLoads> values;
    for (std::size_t i = 0; i < loads.size(); ++i) values[i] = stored(loads[i], own->id());
    return loads.empty() || write(kLoadsOffset, values.data(), loads.size() * sizeof(StoredLoad));
  }

  bool write(std::size_t offset, const void* data, std::size_t bytes) {
    if (own->write(offset, data, bytes)) return true;
    if (log.first("write"))
      log_warn("registry: cannot write to {}: {}: others learn only a part", path,
               std::strerror(errno));
    return false;
  }

  const int of_generation = current_generation();
  const std::string path;
  const RegistryTimes& times;
  [[maybe_unused]] const Session* const inherited;  // kept reachable, for leak checkers
  std::mutex mutex;
  State state = State::unopened;
  std::string why_unusable;
  std::uint64_t looked_ns = 0;
  LogOnce log;
  std::optional<RegistryFolder> opened;
  std::unique_ptr<OwnFile> own;
  PeerFiles others{log};
  MemoryTable memory;
  FlightTable flights;
  std::vector<LoadRecord> loads;
};

Registry::Registry(std::string folder, RegistryTimes times)
    : folder_(std::move(folder)), times_(times), session_(new Session(folder_, times_, nullptr)) {}

Registry::~Registry() {
  close();
  // A session of the process that forked this one is never destroyed here: its file is not ours to
  // remove.
  Session* const session = session_.load();
  if (session->of_generation == current_generation()) delete session;
}

/// That of the process which forked this one is left as it is: a thread that is not there any more
/// may hold its lock.
Registry::Session& Registry::session() {
  Session* current = session_.load(std::memory_order_acquire);
  if (current->of_generation == current_generation()) return *current;
  auto own = std::make_unique<Session>(folder_, times_, current);
  if (session_.compare_exchange_strong(current, own.get())) return *own.release();
  return *current;
}

std::string Registry::why_unusable() {
  Session& own = session();
  const std::lock_guard lock(own.mutex);
  own.look(now_ns());
  return own.why_unusable;
}

bool Registry::publish(const MemoryRecord& record) {
  Session& own = session();
  const std::lock_guard lock(own.mutex);
  if (!own.ready_to_write()) return false;
  const MemoryTable::Change change = own.memory.publish(record);
  if (change.cleared) own.write_memory(*change.cleared, nullptr);
  if (own.write_memory(change.written, &own.memory.entries().at(change.written))) return true;
  own.memory.withdraw(record.base);
  return false;
}

std::optional<MemoryRecord> Registry::find(const IpcHandle& handle) {
  Session& own = session();
  const std::lock_guard lock(own.mutex);
  return own.look_now(now_ns()) ? own.others.find(handle) : std::nullopt;
}

FlightToken Registry::start(const InFlightTransfer& flight) {
  Session& own = session();
  const std::uint64_t now = now_ns();
  const std::lock_guard lock(own.mutex);
  if (!own.look(now)) return {};
  const bool is_published = !own.others.empty() || flight.until_ns > now + times_.long_flight_ns;
  const FlightToken token = own.flights.start(flight, now, is_published);
  if (token.value == 0 || !is_published) return token;
  if (own.ready_to_write() && own.write_flight(FlightTable::place_of(token))) return token;
  own.flights.end(token);
  return {};
}

void Registry::end(FlightToken token) {
  if (token.value == 0) return;
  Session& own = session();
  const std::lock_guard lock(own.mutex);
  const auto ended = own.flights.end(token);
  if (ended && ended->published && own.ready_to_write())
    own.write_flight(FlightTable::place_of(token));
}

void Registry::others(std::vector<InFlightTransfer>& out) {
  std::vector<OtherLoad> unused;
  others(out, unused);
}

bool Registry::tell_loads(std::span<const LoadRecord> records) {
  Session& own = session();
  const std::uint64_t now = now_ns();
  const std::lock_guard lock(own.mutex);
  own.loads.assign(records.begin(),
                   records.begin() + static_cast<std::ptrdiff_t>(std::min(records.size(), kLoads)));
  if (!own.look(now) || own.others.empty()) return false;
  return own.ready_to_write() && own.write_loads();
}

void Registry::others(std::vector<InFlightTransfer>& out, std::vector<OtherLoad>& loads,
                      bool all_loads) {
  out.clear();
  loads.clear();
  Session& own = session();
  const std::uint64_t now = now_ns();
  const std::lock_guard lock(own.mutex);
  if (own.look(now)) own.others.append_traffic(now, out, loads, all_loads);
}

void Registry::close() noexcept {
  Session& own = *session_.load();
  if (own.of_generation != current_generation()) return;
  const std::lock_guard lock(own.mutex);
  own.own.reset();
  if (own.state == Session::State::open) own.opened->remove_if_empty();
  own.others.clear();
  own.state = Session::State::closed;
  own.why_unusable = "it is closed";
}

// ---- of the process ----------------------------------------------------------------------------

namespace {

/// A list without a lock, which a child could inherit locked. Entries stay: they may be asked for
/// until the very end of the process.
struct Shared {
  std::string folder;
  std::shared_ptr<Registry> registry;
  Shared* next = nullptr;
};
std::atomic<Shared*> all_shared{nullptr};

struct CloseAtExit {
  ~CloseAtExit() {
    for (Shared* shared = all_shared.load(); shared != nullptr; shared = shared->next)
      shared->registry->close();
  }
};

Shared* find_shared(Shared* from, const std::string& folder) {
  while (from != nullptr && from->folder != folder) from = from->next;
  return from;
}

}  // namespace

std::shared_ptr<Registry> process_registry(const std::string& setting) {
  static const CloseAtExit close_at_exit;
  const std::string folder = setting == "auto"  ? default_registry_folder()
                             : setting == "off" ? std::string()
                                                : setting;
  std::unique_ptr<Shared> created(new Shared{folder, std::make_shared<Registry>(folder), nullptr});
  Shared* first = all_shared.load();
  do {
    if (const Shared* shared = find_shared(first, folder)) return shared->registry;
    created->next = first;
  } while (!all_shared.compare_exchange_weak(first, created.get()));
  return created.release()->registry;
}

}  // namespace polypath
