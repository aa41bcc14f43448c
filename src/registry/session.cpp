#include "registry/session.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "registry/clock.hpp"

namespace polypath {
namespace {

/// So often may others' normal ends remove the folder while this process opens it.
constexpr int kOpenings = 100;

}  // namespace

RegistrySession::RegistrySession(std::string folder, const RegistrySession* inherited)
    : pid_(getpid()), path_(std::move(folder)), inherited_(inherited) {
  if (path_.empty()) {
    state_ = State::unusable;
    why_unusable_ = "it is switched off";
  }
}

std::string RegistrySession::why_unusable() {
  const std::lock_guard lock(mutex_);
  static_cast<void>(ready_to_read());
  return why_unusable_;
}

bool RegistrySession::publish(const MemoryRecord& record) {
  const std::lock_guard lock(mutex_);
  if (!ready_to_write()) return false;
  const MemoryTable::Change change = memory_.publish(record);
  if (change.cleared) write_memory(*change.cleared, nullptr);
  if (write_memory(change.written, &memory_.entries().at(change.written))) return true;
  memory_.withdraw(record.base);
  return false;
}

void RegistrySession::withdraw(std::uint64_t base) {
  const std::lock_guard lock(mutex_);
  if (const auto place = memory_.withdraw(base); place && ready_to_write())
    write_memory(*place, nullptr);
}

std::optional<MemoryRecord> RegistrySession::find(const IpcHandle& handle) {
  const std::lock_guard lock(mutex_);
  return ready_to_read() ? others_.find(handle) : std::nullopt;
}

FlightToken RegistrySession::start(const Flight& flight) {
  const std::lock_guard lock(mutex_);
  if (!ready_to_write()) return {};
  const FlightToken token = flights_.start(flight, monotonic_ns());
  if (token.value == 0) return {};
  const std::size_t place = FlightTable::place_of(token);
  if (write_flight(place, flights_.entries()[place])) return token;
  flights_.end(token);
  return {};
}

void RegistrySession::end(FlightToken token) {
  const std::lock_guard lock(mutex_);
  if (const auto place = flights_.end(token); place && ready_to_write())
    write_flight(*place, flights_.entries()[*place]);
}

void RegistrySession::others(std::vector<Flight>& out) {
  out.clear();
  const std::lock_guard lock(mutex_);
  if (ready_to_read()) others_.append_flights(monotonic_ns(), out);
}

void RegistrySession::close() noexcept {
  const std::lock_guard lock(mutex_);
  own_.reset();
  if (state_ == State::open) folder_->remove_if_empty();
  others_.clear();
  state_ = State::closed;
  why_unusable_ = "it is closed";
}

/// Whether this process has a file that others see. One system call.
bool RegistrySession::ready_to_write() {
  if (state_ == State::unopened || (state_ == State::open && own_->lost())) open();
  return state_ == State::open;
}

/// Whether others_ is what the folder holds. One system call where nothing changed.
bool RegistrySession::ready_to_read() {
  if (state_ == State::unopened) open();
  if (state_ == State::open && !others_.refresh(*folder_)) open();
  return state_ == State::open;
}

/// Opens the registry, or opens it again after somebody removed the folder or this process's file, or closed
/// its descriptor: what was published is told again.
void RegistrySession::open() {
  try {
    open_files();
  } catch (const Error& error) {
    give_up(error.what());
    return;
  }
  state_ = State::open;
  others_.refresh(*folder_);
  for (const auto& [place, entry] : memory_.entries()) write_memory(place, &entry);
  for (std::size_t place = 0; place < kFlights; ++place)
    if (const auto& entry = flights_.entries()[place]; entry.token != 0) write_flight(place, entry);
}

void RegistrySession::open_files() {
  own_.reset();
  others_.clear();
  for (int opening = 0; own_ == nullptr; ++opening) {
    if (opening == kOpenings) throw Error(path_ + " is removed again and again");
    folder_.emplace(path_);
    own_ = OwnFile::create(*folder_);
  }
}

void RegistrySession::give_up(const std::string& why) {
  log_warn("registry: {}: this process shares nothing with others", why);
  state_ = State::unusable;
  why_unusable_ = why;
  own_.reset();
  others_.clear();
}

bool RegistrySession::write_memory(std::uint32_t place, const MemoryTable::Entry* entry) {
  const StoredMemory value =
      entry != nullptr ? stored(entry->record, entry->sequence, own_->id()) : StoredMemory{};
  return write(kMemoryOffset + place * sizeof value, &value, sizeof value);
}

bool RegistrySession::write_flight(std::size_t place, const FlightTable::Entry& entry) {
  const StoredFlight value = entry.token != 0 ? stored(entry.flight, own_->id()) : StoredFlight{};
  return write(kFlightsOffset + place * sizeof value, &value, sizeof value);
}

bool RegistrySession::write(std::size_t offset, const void* data, std::size_t bytes) {
  if (own_->write(offset, data, bytes)) return true;
  if (said_.first("write"))
    log_warn("registry: cannot write to {}: {}: others learn only a part", path_,
             std::strerror(errno));
  return false;
}

}  // namespace polypath
