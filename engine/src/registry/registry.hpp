// What the processes of one user on one machine tell each other: where exported GPU memory lies,
// and what each has in flight. For people: docs/registry.md.
//
// A process has one file in the folder, which only it writes and all others read. No process can
// damage another's file, and there is no lock that a dead process could hold. Transfers are correct
// without the registry: a process that learns nothing plans as if it were alone, and copies
// natively if it does not know where memory lies.
//
// A transfer of a lone process makes no system call: it looks for others now and then only, and
// publishes flights when another process could see them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "registry/files.hpp"
#include "registry/records.hpp"
#include "registry/tables.hpp"

namespace polypath {

/// CLOCK_MONOTONIC, nanoseconds: the clock by which flights end, the same one in all processes of a
/// machine.
std::uint64_t monotonic_ns() noexcept;

struct RegistryTimes {
  std::uint64_t (*now_ns)() noexcept = &monotonic_ns;
  /// So long others that came or went may be overlooked.
  std::uint64_t look_every_ns = 10'000'000;
  /// Flights that last longer are published even before there is another process.
  std::uint64_t long_flight_ns = 100'000'000;
};

/// Thread-safe. No function throws but std::bad_alloc. The registry is opened by the first call of
/// any of them; when it cannot be, or not any more, that is logged once, and they behave as if
/// there were no other process.
///
/// In a forked child it is another one: empty, with a file of the child's own from its first call
/// on; tokens and records of the parent mean nothing to it. What the parent told stays told.
class Registry {
 public:
  /// `folder`: an absolute path; processes meet if theirs are the same. Empty: switched off.
  explicit Registry(std::string folder = default_registry_folder(), RegistryTimes times = {});
  /// Closes it, unless in a forked child that never used it.
  ~Registry();
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  /// By its clock.
  [[nodiscard]] std::uint64_t now_ns() const noexcept { return times_.now_ns(); }

  /// Why this process shares nothing with others, one line; empty: it does.
  std::string why_unusable();

  /// Tells others where the memory of `record.handle` lies. The record replaces the one with this
  /// handle, and the one with this base address: its memory was freed. A process has room for 16384
  /// records, 16 in each of the 1024 groups that handles fall into; where a group is full its
  /// oldest record leaves. False: it was not published.
  bool publish(const MemoryRecord& record);
  /// Where the memory of `handle` lies: the record of another process that lives, also of one that
  /// came just now. One system call a process, and one more for the owner.
  std::optional<MemoryRecord> find(const IpcHandle& handle);

  /// Publishes that these bytes are under way, until end() or `flight.until_ns`, the earlier of
  /// both. A token of none when 64 are under way already, or no process could ever see it.
  FlightToken start(const InFlightTransfer& flight);
  /// The flight is over. A token of none, or of a flight that is over, is let pass.
  void end(FlightToken token);
  /// Sets `out` to the flights of all other processes that live, without those that are over.
  void others(std::vector<InFlightTransfer>& out);
  /// As others() above. Also sets `loads` to what they say of the load of links, without what is
  /// over by now; with `all_loads` all of it.
  void others(std::vector<InFlightTransfer>& out, std::vector<OtherLoad>& loads,
              bool all_loads = false);

  /// Tells others how loaded links are: the first 32 of `records` take the place of those told
  /// before. Nothing is written if there is no other process. One system call. False: it was not
  /// published.
  bool tell_loads(std::span<const LoadRecord> records);

  /// Removes this process's file, and the folder if no other file is in it. From then on it is
  /// unusable. In a forked child that has not used it, nothing happens.
  void close() noexcept;

 private:
  struct Session;
  Session& session();

  const std::string folder_;
  const RegistryTimes times_;
  std::atomic<Session*> session_;
};

/// The process's registry for the setting `registry`: "auto" (default_registry_folder()), "off", or
/// a folder. The same one for the same folder. Never null; thread-safe.
///
/// It is closed when the process exits or the library is unloaded, also if it still has owners:
/// contexts that are never destroyed leave no file.
std::shared_ptr<Registry> process_registry(const std::string& setting);

}  // namespace polypath
