// One process's part in the registry: its own file, and what it reads of the others'.
#pragma once

#include <sys/types.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "registry/flight_table.hpp"
#include "registry/folder.hpp"
#include "registry/memory_table.hpp"
#include "registry/other_files.hpp"
#include "registry/own_file.hpp"
#include "registry/said_once.hpp"

namespace polypath {

/// Thread-safe. Belongs to the process that made it; registry.hpp says what its functions promise. Nothing is
/// opened before the first of them is called.
class RegistrySession {
 public:
  /// `folder` empty: off. `inherited`: the session of the process that forked this one. It is left as it is:
  /// a thread that is not there any more may hold its lock.
  explicit RegistrySession(std::string folder, const RegistrySession* inherited = nullptr);
  ~RegistrySession() { close(); }
  RegistrySession(const RegistrySession&) = delete;
  RegistrySession& operator=(const RegistrySession&) = delete;

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }

  std::string why_unusable();
  bool publish(const MemoryRecord& record);
  void withdraw(std::uint64_t base);
  std::optional<MemoryRecord> find(const IpcHandle& handle);
  FlightToken start(const Flight& flight);
  void end(FlightToken token);
  void others(std::vector<Flight>& out);
  void close() noexcept;

 private:
  enum class State { unopened, open, unusable, closed };

  // All of these under mutex_.
  bool ready_to_write();
  bool ready_to_read();
  void open();
  void open_files();
  void give_up(const std::string& why);
  bool write_memory(std::uint32_t place, const MemoryTable::Entry* entry);
  bool write_flight(std::size_t place, const FlightTable::Entry& entry);
  bool write(std::size_t offset, const void* data, std::size_t bytes);

  const pid_t pid_;
  const std::string path_;
  [[maybe_unused]] const RegistrySession* const inherited_;  // kept reachable, for leak checkers
  std::mutex mutex_;
  State state_ = State::unopened;
  std::string why_unusable_;
  SaidOnce said_;
  std::optional<RegistryFolder> folder_;
  std::unique_ptr<OwnFile> own_;
  OtherFiles others_{said_};
  MemoryTable memory_;
  FlightTable flights_;
};

}  // namespace polypath
