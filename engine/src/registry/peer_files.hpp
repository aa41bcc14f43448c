// The registry files of other processes, as this one reads them.
#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "registry/files.hpp"
#include "registry/records.hpp"

namespace polypath {

/// Not thread-safe.
class LogOnce {
 public:
  /// True the first time that it is asked for `cause`, which is a literal.
  bool first(std::string_view cause) { return causes_.insert(cause).second; }

 private:
  std::set<std::string_view> causes_;
};

// The registry file of another process, as this one reads it.

/// Not thread-safe. Reading is safe for any contents and changes of the file: damaged parts are
/// ignored, and reported once.
class PeerFile {
 public:
  /// `name` in `folder`. `log` outlives the object.
  PeerFile(const Descriptor& folder, const RegistryFileName& name, LogOnce& log);

  [[nodiscard]] const RegistryFileName& name() const noexcept { return name_; }
  /// Why it could not be opened, an errno; 0: it was.
  [[nodiscard]] int open_error() const noexcept { return open_error_; }
  /// Whether its owner lives. One system call.
  [[nodiscard]] bool alive() const noexcept;
  /// Looks whether the file can be read; until then nothing is found in it.
  void check();
  /// Seconds since something was last written to it, by the clock of files.
  [[nodiscard]] std::int64_t age_s() const noexcept;

  /// The record with this handle. Does not ask whether the owner lives.
  [[nodiscard]] std::optional<MemoryRecord> find(const IpcHandle& handle);
  /// Appends the flights and the loads that count after `now_ns`; with `all_loads` those that do
  /// not as well. Does not ask whether the owner lives. One system call.
  void append_traffic(std::uint64_t now_ns, std::vector<InFlightTransfer>& flights,
                      std::vector<OtherLoad>& loads, bool all_loads);

 private:
  /// Why it cannot be read; null: it can.
  [[nodiscard]] const char* objection() const noexcept;
  /// Calls `look` until it says that all it read was whole. Once that was in vain, it looks but
  /// once.
  template <typename Look>
  void read_until_intact(Look look);

  RegistryFileName name_;
  LogOnce* said_;
  Descriptor descriptor_;
  int open_error_ = 0;
  bool readable_ = false;
  bool damaged_ = false;  ///< inside: what was looked at last
};

// The registry files of all other processes, kept open from one look into the folder to the next.

/// Not thread-safe.
class PeerFiles {
 public:
  /// `log` outlives the object.
  explicit PeerFiles(LogOnce& log) : said_(log) {}

  /// Learns of processes that came or went: reads the folder if it has changed since (else this is
  /// one system call), and removes the files of dead processes. False: the folder is gone.
  bool refresh(const RegistryFolder& folder);

  /// The record with this handle, of a process that lives.
  [[nodiscard]] std::optional<MemoryRecord> find(const IpcHandle& handle);
  /// PeerFile::append_traffic() of all processes that live. One system call a process, and one
  /// more for each that has something.
  void append_traffic(std::uint64_t now_ns, std::vector<InFlightTransfer>& flights,
                      std::vector<OtherLoad>& loads, bool all_loads);
  /// Whether no other process is known.
  [[nodiscard]] bool empty() const noexcept { return files_.empty(); }
  /// Forgets all; the next refresh() reads the folder.
  void clear() noexcept;

 private:
  void read_files(const Descriptor& folder, const std::vector<std::string>& names);
  std::unique_ptr<PeerFile> take(const RegistryFileName& name);

  LogOnce& said_;
  std::vector<std::unique_ptr<PeerFile>> files_;
  timespec changed_{};    ///< the folder, when it was read
  bool settled_ = false;  ///< a later change gives the folder another time than changed_
};

}  // namespace polypath
