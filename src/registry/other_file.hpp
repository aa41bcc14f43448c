// The registry file of another process, as this one reads it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "registry/descriptor.hpp"
#include "registry/file_name.hpp"
#include "registry/said_once.hpp"
#include "registry/values.hpp"

namespace polypath {

/// Not thread-safe. Whatever the file holds or becomes, reading it does no harm: what is damaged is as if it
/// were not there, and said once.
class OtherFile {
 public:
  /// `name` in `folder`. `said` outlives the object.
  OtherFile(const Descriptor& folder, const RegistryFileName& name, SaidOnce& said);

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
  /// Appends the flights that count after `now_ns`. Does not ask whether the owner lives. One system call.
  void append_flights(std::uint64_t now_ns, std::vector<Flight>& out);

 private:
  /// Why it cannot be read; null: it can.
  [[nodiscard]] const char* objection() const noexcept;
  /// Calls `look` until it says that all it read was whole. Once that was in vain, it looks but once.
  template <typename Look>
  void look_until_whole(Look look);

  RegistryFileName name_;
  SaidOnce* said_;
  Descriptor descriptor_;
  int open_error_ = 0;
  bool readable_ = false;
  bool damaged_ = false;  ///< inside: what was looked at last
};

}  // namespace polypath
