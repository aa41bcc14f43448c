#include "registry/registry.hpp"

#include <unistd.h>

#include <utility>

#include "registry/session.hpp"

namespace polypath {

Registry::Registry(std::string folder)
    : folder_(std::move(folder)), session_(new RegistrySession(folder_)) {}

Registry::~Registry() {
  // A session of the process that forked this one is never destroyed here: its file is not ours to remove.
  RegistrySession* const session = session_.load();
  if (session->pid() == getpid()) delete session;
}

RegistrySession& Registry::session() {
  RegistrySession* current = session_.load(std::memory_order_acquire);
  if (current->pid() == getpid()) return *current;
  auto own = std::make_unique<RegistrySession>(folder_, current);
  if (session_.compare_exchange_strong(current, own.get())) return *own.release();
  return *current;
}

std::string Registry::why_unusable() { return session().why_unusable(); }

bool Registry::publish(const MemoryRecord& record) { return session().publish(record); }

void Registry::withdraw(std::uint64_t base) { session().withdraw(base); }

std::optional<MemoryRecord> Registry::find(const IpcHandle& handle) {
  return session().find(handle);
}

FlightToken Registry::start(const Flight& flight) { return session().start(flight); }

void Registry::end(FlightToken token) { session().end(token); }

void Registry::others(std::vector<Flight>& out) { session().others(out); }

void Registry::close() noexcept {
  RegistrySession* const session = session_.load();
  if (session->pid() == getpid()) session->close();
}

}  // namespace polypath
