// What the processes of one user on one machine tell each other: where exported GPU memory lies, and what
// each has in flight. For people: docs/registry.md.
//
// A process has one file in the folder, which only it writes and all others read. No process can damage
// another's file, and there is no lock that a dead process could hold. Nothing here is needed for a transfer to
// be right: whoever learns nothing plans as if it were alone, and copies natively what it cannot place.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "registry/flight_table.hpp"
#include "registry/folder.hpp"
#include "registry/values.hpp"

namespace polypath {

class RegistrySession;

/// Thread-safe. No function throws but std::bad_alloc. The registry is opened by the first call of any of them;
/// when it cannot be, or not any more, that is logged once, and they behave as if there were no other process.
///
/// In a forked child it is another one: empty, with a file of the child's own from its first call on; tokens and
/// records of the parent mean nothing to it. What the parent told stays told.
class Registry {
 public:
  /// `folder`: an absolute path; processes meet if theirs are the same. Empty: switched off.
  explicit Registry(std::string folder = default_registry_folder());
  /// Closes it, unless in a forked child that never used it.
  ~Registry();
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  /// Why this process shares nothing with others, one line; empty: it does.
  std::string why_unusable();

  /// Tells others where the memory of `record.handle` lies. The record replaces the one with this handle, and
  /// the one with this base address: its memory was freed. A process has room for 16384 records, 16 in each of
  /// the 1024 groups that handles fall into; where a group is full its oldest record leaves. False: nobody
  /// learns of it.
  bool publish(const MemoryRecord& record);
  /// The memory at this base address is freed, or not to be found any more.
  void withdraw(std::uint64_t base);
  /// Where the memory of `handle` lies: the record of another process that lives. One system call a process, and
  /// one more for the owner.
  std::optional<MemoryRecord> find(const IpcHandle& handle);

  /// Tells others that these bytes are under way, until end() or `flight.until_ns`, whichever is first. A token
  /// of none when 64 are under way already, or nobody learns of it.
  FlightToken start(const Flight& flight);
  /// The flight is over. A token of none, or of a flight that is over, is let pass.
  void end(FlightToken token);
  /// Sets `out` to the flights of all other processes that live, without those that are over.
  void others(std::vector<Flight>& out);

  /// Removes this process's file, and the folder if no other file is in it. From then on it is unusable. In a
  /// forked child that has not used it, nothing happens.
  void close() noexcept;

 private:
  RegistrySession& session();

  const std::string folder_;
  std::atomic<RegistrySession*> session_;
};

}  // namespace polypath
