// The registry files of all other processes, kept open from one look into the folder to the next.
#pragma once

#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "registry/folder.hpp"
#include "registry/other_file.hpp"
#include "registry/said_once.hpp"

namespace polypath {

/// Not thread-safe.
class OtherFiles {
 public:
  /// `said` outlives the object.
  explicit OtherFiles(SaidOnce& said) : said_(said) {}

  /// Learns of processes that came or went: reads the folder if it has changed since (else this is one system
  /// call), and removes the files of dead processes. False: the folder is gone.
  bool refresh(const RegistryFolder& folder);

  /// The record with this handle, of a process that lives.
  [[nodiscard]] std::optional<MemoryRecord> find(const IpcHandle& handle);
  /// Appends the flights of all processes that live which count after `now_ns`. One system call a process,
  /// and one more for each that has flights.
  void append_flights(std::uint64_t now_ns, std::vector<Flight>& out);
  /// Forgets all; the next refresh() reads the folder.
  void clear() noexcept;

 private:
  void read_files(const Descriptor& folder, const std::vector<std::string>& names);
  std::unique_ptr<OtherFile> take(const RegistryFileName& name);

  SaidOnce& said_;
  std::vector<std::unique_ptr<OtherFile>> files_;
  timespec changed_{};    ///< the folder, when it was read
  bool settled_ = false;  ///< a later change gives the folder another time than changed_
};

}  // namespace polypath
